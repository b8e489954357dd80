"""Callbacks: called after every step of a training; two end it early, one stores the states of a chain.

`gilib.training.early_stopping` has one more, which returns to the best state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

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
    """Is called after every step, and may end the training; its state is kept in checkpoints."""

    @abstractmethod
    def __call__(self, step: int, bound: Tensor, net: Network) -> bool | None:
        """Look at the training.

        Args:
            step: how many steps are done.
            bound: the objective per data point before the last one, `[R]`. On an accelerator it may still be
                on its way: whoever reads it waits. So read it at every hundredth step, say, and keep sums in
                between.
            net: after the step.

        Returns:
            True to end the training here; False or None to go on.
        """

    def check(self, net: Network, likelihood: Likelihood) -> None:  # noqa: B027 (optional)
        """Raise if this is not a training that it can look at; called before any work."""

    def begin(self) -> None:  # noqa: B027 (optional)
        """Forget other trainings; called before the first step."""

    def end(self, net: Network) -> None:  # noqa: B027 (optional)
        """Called when the training is over, for whatever reason but an error or a deadline."""

    def describe(self) -> str:
        """The callback in a word, for the history of a training that it ends."""
        return type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data on which later calls depend."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        if state:
            raise NotImplementedError(f"{type(self).__name__} has a state_dict and no load_state_dict")


class Plateau(Callback):
    """Ends a training whose bound no longer rises.

    The bound is averaged over windows of steps. A training ends after so many windows in a row whose mean was
    no gain over the best one before them; replicas end when all have come to that.

    Args:
        every: steps of a window.
        patience: how many windows without a gain end the training.
        least: a gain is more than this, nats per data point.

    >>> plateau = Plateau(every=1, patience=2)
    >>> plateau.begin()
    >>> [plateau(step, torch.tensor(bound), None) for step, bound in enumerate([1.0, 2.0, 2.0, 1.5], 1)]
    [False, False, False, True]
    """

    def __init__(self, every: Count = 100, patience: Count = 10, least: float = 0.0):
        """Wait for a training to begin."""
        self.every, self.patience, self.least = every, patience, least
        self.begin()

    def begin(self) -> None:
        """No window yet."""
        self.total: Tensor | float = 0.0
        self.best: Tensor | float = -torch.inf
        self.waited: Tensor | int = 0

    def __call__(self, step: int, bound: Tensor, net: Network) -> bool:
        """Add to the window; at its end compare."""
        self.total = self.total + bound
        if step % self.every:
            return False
        mean, self.total = self.total / self.every, 0.0
        rises = mean > self.best + self.least
        self.best = torch.where(rises, mean, self.best)
        self.waited = torch.where(rises, 0, self.waited + 1)
        return bool((self.waited >= self.patience).all())

    def state_dict(self) -> dict[str, Any]:
        """The window so far, the best mean, and how many have passed since."""
        return {"total": self.total, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.total, self.best, self.waited = state["total"], state["best"], state["waited"]


class FallingStrips(Callback):
    """Ends a training whose validation score has fallen in several successive strips.

    This is Prechelt's criterion UP (Early stopping - but when?, 1998), with which Lindinger et al. (2020,
    App. G) end theirs after five strips: a strip is k steps, at its end the score is computed, and falls if
    it is below that of the end of the strip before. Replicas end when all have come to that. Parameters are
    those of the end, not of the best score.

    Args:
        score: `score(net)` is a number, or one for every replica `[R]`; higher is better, for example the
            mean log-likelihood of a tenth of the training set that was held out. Give it a generator that
            starts anew at every call.
        every: k, steps of a strip.
        strips: how many successive falls end the training.

    >>> scores = iter([1.0, 3.0, 2.0, 1.0])
    >>> stop = FallingStrips(lambda net: next(scores), every=1, strips=2)
    >>> [stop(step, torch.tensor(0.0), None) for step in range(1, 5)]
    [False, False, False, True]
    """

    def __init__(self, score: Callable[[Network], float | Tensor], every: Count = 100, strips: Count = 5):
        """Wait for a training to begin."""
        self.score, self.every, self.strips = score, every, strips
        self.begin()

    def begin(self) -> None:
        """No strip yet."""
        self.last: Tensor | float = -torch.inf
        self.falls: Tensor | int = 0
        self.ended: Tensor | bool = False

    def __call__(self, step: int, bound: Tensor, net: Network) -> bool:
        """At the end of a strip compare its score with the last."""
        if step % self.every:
            return False
        with torch.no_grad():
            score = torch.as_tensor(self.score(net))
        self.falls = torch.where(score < self.last, self.falls + 1, 0)
        self.last, self.ended = score, self.ended | (self.falls >= self.strips)
        return bool(self.ended.all())

    def state_dict(self) -> dict[str, Any]:
        """The last score, the falls that led to it, and who has come to the end."""
        return {"last": self.last, "falls": self.falls, "ended": self.ended}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.last, self.falls, self.ended = state["last"], state["falls"], state["ended"]


class StoredStates(Callback):
    """Stores every k-th state that `SGHMC` comes to, on the CPU; checkpoints hold them.

    Args:
        burn_in: steps before the first state that may be stored, `rule.burn_in`.
        every: k, steps from one stored state to the next.

    Attributes:
        states: by name, as in `net.named_parameters()`, a list of `[R, I, O]`.

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

    def __init__(self, burn_in: CountOrZero, every: Count = 50):
        """Nothing yet."""
        self.burn_in, self.every = burn_in, every
        self.begin()

    def begin(self) -> None:
        """Forget the states of another training."""
        self.states: dict[str, list[Tensor]] = {}

    def __call__(self, step: int, bound: Tensor, net: Network) -> None:
        """Store the state if it is time to."""
        if step <= self.burn_in or (step - self.burn_in) % self.every:
            return
        for name, value in point_parameters(net).items():
            self.states.setdefault(name, []).append(value.detach().to("cpu", copy=True))

    def samples(self, net: Network) -> Samples:
        """The states, as functions of the network that was trained.

        Raises:
            ValueError: if there are none yet.
        """
        if not self.states:
            raise ValueError(
                f"no states are stored: the first would be that of step {self.burn_in + self.every}; train "
                "by SGHMC for more steps, with this object among the callbacks"
            )
        return Samples(net, {name: torch.stack(values) for name, values in self.states.items()})

    def state_dict(self) -> dict[str, Any]:
        """The states so far."""
        return {"states": self.states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.states = {name: list(values) for name, values in state["states"].items()}


class FunctionCallback(Callback):
    """A function as a callback; it has no state."""

    def __init__(self, function: CallbackFunction):
        """Hold the function."""
        self.function = function

    def __call__(self, step: int, bound: Tensor, net: Network) -> bool:
        """What the function says."""
        return says_stop(self.function(step, bound, net), self.function)

    def describe(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def says_stop(said: object, who: object) -> bool:
    """Whether a callback ends the training; many a function returns something else without a thought.

    Raises:
        TypeError: if it is neither True or False nor None.
    """
    if said is None or isinstance(said, bool | np.bool_):
        return bool(said)
    if isinstance(said, Tensor) and said.dtype == torch.bool and said.dim() == 0:
        return bool(said)
    raise TypeError(
        f"a callback must return True, to end the training, or False or None to go on: {who!r:.80} returned "
        f"{said!r:.80}"
    )


def as_callbacks(given: Any) -> list[Callback]:
    """Callbacks, of which some may be functions.

    Raises:
        TypeError: for something that cannot be called, or a callback that is not in a list.
    """
    if callable(given) or not hasattr(given, "__iter__"):
        raise TypeError(f"callbacks must be a list of functions, got {given!r}: write [{given!r}]")
    for callback in given:
        if isinstance(callback, type):
            raise TypeError(f"a callback must be an instance: write {callback.__name__}(...)")
        if not callable(callback):
            raise TypeError(f"a callback is a function of step, bound and net, got {callback!r}")
    return [c if isinstance(c, Callback) else FunctionCallback(c) for c in given]
