"""A callback that keeps the states of a chain, thinned, for predictions with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gilib.drawables import Samples
from gilib.network import Network
from gilib.training.sghmc import point_parameters
from gilib.training.stopping import Callback
from gilib.validation import count


class KeptStates(Callback):
    """Keeps every k-th state that `SGHMC` comes to, on the CPU; checkpoints hold them.

    Args:
        after: the steps before the first k that count, `rule.burn_in`.
        every: k.

    Attributes:
        states: by name, as in `net.named_parameters()`, a list of `[R, I, O]`.

    >>> import gilib
    >>> from gilib.training import SGHMC
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> net = gilib.models.deep_gp(1, 1, posterior=gilib.PointEstimate(), inducing_points=x[::5])
    >>> rule = SGHMC(burn_in=3)
    >>> kept = KeptStates(after=rule.burn_in, every=2)
    >>> noise = gilib.Gaussian(0.1)
    >>> _ = gilib.fit(net, noise, x, x, steps=9, rule=rule, callbacks=[kept], progress=False)
    >>> gilib.predict(kept.samples(net), noise, x, num_samples=3).mean.shape
    torch.Size([20, 1])
    """

    def __init__(self, after: int, every: int = 50):
        """Nothing yet."""
        count(after, "after", 0)
        count(every, "every")
        self.after, self.every = after, every
        self.begin()

    def begin(self) -> None:
        """Forget the states of another training."""
        self.states: dict[str, list[Tensor]] = {}

    def __call__(self, step: int, bound: Tensor, net: Network) -> None:
        """Keep the state if it is time to."""
        if step <= self.after or (step - self.after) % self.every:
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
                f"no states are kept: the first would be that of step {self.after + self.every}; train by "
                "SGHMC for more steps, with this object among the callbacks"
            )
        return Samples(net, {name: torch.stack(values) for name, values in self.states.items()})

    def state_dict(self) -> dict[str, Any]:
        """The states so far."""
        return {"states": self.states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.states = {name: list(values) for name, values in state["states"].items()}
