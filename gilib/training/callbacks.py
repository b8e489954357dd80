"""Callbacks, which `gilib.fit` calls after every step: they stop the training or store states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gilib.arguments import Checked, Count, CountOrZero
from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.prediction.drawables import Samples
from gilib.training.rules.sghmc import point_parameters

CallbackFunction = Callable[[int, Tensor, Network], Any]


class Callback(Checked, ABC):
    """An object that `gilib.fit` calls after every step, and that may stop the training.

    A checkpoint contains the state of every callback.

    Attributes:
        remembers: names of the attributes on which later calls depend: tensors and plain data.
        reads_only: whether it changes nothing that later steps read, so that these can be replayed.
    """

    remembers: ClassVar[tuple[str, ...]] = ()
    reads_only: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, step: int, bound: Tensor, net: Network) -> bool | None:
        """Look at the training after a step; return True to stop it.

        Args:
            step: how many steps are done.
            bound: the objective per data point before this step, `[R]`. Reading it makes the host wait for an
                accelerator, so read it only now and then, and accumulate sums on the device in between.
            net: the network after the step.

        Returns:
            True to end the training here, for good; False or None to go on.
        """

    def check(self, net: Network, likelihood: Likelihood) -> None:  # noqa: B027 (optional)
        """Raise an error if the callback cannot work with this training; called before any work starts."""

    def begin(self) -> None:  # noqa: B027 (optional)
        """Forget any earlier training; called before the first step."""

    def end(self, net: Network) -> None:  # noqa: B027 (optional)
        """Finish up; called when the training is over, unless an error or a deadline ended it."""

    def describe(self) -> str:
        """Return a short name, which the history shows if this callback stops the training."""
        return type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors and plain data on which later calls depend."""
        return {name: getattr(self, name) for name in self.remembers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        if set(state) != set(self.remembers):
            raise NotImplementedError(f"{type(self).__name__} has a state_dict and no load_state_dict")
        for name, value in state.items():
            setattr(self, name, value)


class Plateau(Callback):
    """Stops a training whose bound, averaged over windows of steps, no longer rises for any replica.

    Args:
        every: number of steps in a window.
        patience: number of windows in a row without a gain over the best mean that stop the training.
        min_gain: an increase counts as a gain only above this value, in nats per data point.

    >>> plateau = Plateau(every=1, patience=2)
    >>> plateau.begin()
    >>> [plateau(step, torch.tensor(bound), None) for step, bound in enumerate([1.0, 2.0, 2.0, 1.5], 1)]
    [False, False, False, True]
    """

    remembers = ("total", "best", "waited")

    def __init__(self, every: Count = 100, patience: Count = 10, min_gain: float = 0.0):
        self.every, self.patience, self.min_gain = every, patience, min_gain
        self.begin()

    def begin(self) -> None:
        self.total: Tensor | float = 0.0  # over the current window
        self.best: Tensor | float = -torch.inf
        self.waited: Tensor | int = 0  # windows since the best one

    def __call__(self, step: int, bound: Tensor, net: Network) -> bool:
        self.total = self.total + bound
        if step % self.every:
            return False
        mean, self.total = self.total / self.every, 0.0
        rises = mean > self.best + self.min_gain
        self.best = torch.where(rises, mean, self.best)
        self.waited = torch.where(rises, 0, self.waited + 1)
        return bool((self.waited >= self.patience).all())


class StoredStates(Callback):
    """Stores every k-th state of an `SGHMC` chain on the CPU; checkpoints contain the stored states.

    Args:
        burn_in: number of steps before the first state that may be stored; normally `rule.burn_in`.
        every: k, the number of steps from one stored state to the next.

    Attributes:
        states: a list of tensors `[R, I, O]` for each parameter, by its name in `net.named_parameters()`.

    >>> import gilib
    >>> from gilib.training import SGHMC
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> net = gilib.models.deep_gp(1, 1, posterior=gilib.PointEstimate(), inducing_points=x[::5])
    >>> rule = SGHMC(burn_in=3)
    >>> states = StoredStates(burn_in=rule.burn_in, every=2)
    >>> noise = gilib.Gaussian(0.1)
    >>> _ = gilib.fit(net, noise, x, x, steps=9, rule=rule, callbacks=[states], progress=False)
    >>> gilib.predict(states.samples(net), noise, x, num_samples=3).mean.shape
    torch.Size([20, 1])
    """

    remembers = ("states",)

    def __init__(self, burn_in: CountOrZero, every: Count = 50):
        self.burn_in, self.every = burn_in, every
        self.begin()

    def begin(self) -> None:
        self.states: dict[str, list[Tensor]] = {}

    def __call__(self, step: int, bound: Tensor, net: Network) -> None:
        if step <= self.burn_in or (step - self.burn_in) % self.every:
            return
        for name, value in point_parameters(net).items():
            self.states.setdefault(name, []).append(value.detach().to("cpu", copy=True))

    def samples(self, net: Network) -> Samples:
        """Return the stored states as functions that `gilib.predict` can average over.

        Raises:
            ValueError: if no state is stored yet.
        """
        if not self.states:
            raise ValueError(
                f"no states are stored, because the first is due at step {self.burn_in + self.every}: "
                "train by SGHMC for more steps, with this object among the callbacks"
            )
        return Samples(net, {name: torch.stack(values) for name, values in self.states.items()})


class FunctionCallback(Callback):
    """Wraps a plain function as a callback without state."""

    def __init__(self, function: CallbackFunction):
        self.function = function

    def __call__(self, step: int, bound: Tensor, net: Network) -> bool | None:
        return self.function(step, bound, net)

    def describe(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def says_stop(said: object, who: Callback) -> bool:
    """Return whether a callback's return value stops the training; raise unless it is a bool or None."""
    scalar = isinstance(said, Tensor) and said.dtype == torch.bool and said.dim() == 0
    if scalar or said is None or isinstance(said, bool | np.bool_):
        return bool(said)
    raise TypeError(
        "a callback must return True, to end the training, or False or None to go on: "
        f"{who.describe()} returned {said!r:.80}"
    )


def as_callbacks(given: Any) -> list[Callback]:
    """Check a list of callbacks, and wrap each plain function in a `FunctionCallback`."""
    if callable(given) or not hasattr(given, "__iter__"):
        raise TypeError(f"callbacks must be a list of functions, got {given!r}: write [{given!r}]")
    for callback in given:
        if isinstance(callback, type):
            raise TypeError(f"a callback must be an instance: write {callback.__name__}(...)")
        if not callable(callback):
            raise TypeError(f"a callback is a function of step, bound and net, got {callback!r}")
    return [c if isinstance(c, Callback) else FunctionCallback(c) for c in given]
