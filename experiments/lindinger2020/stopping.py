"""Early stopping as in Lindinger et al. (2020), App. G, and their code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import gilib
from gilib.training import Callback, FallingStrips

SCORE_EVERY = 10  # steps between two evaluations of the held-out points
STRIP = 50  # steps of a strip
SMOOTHED = 50  # number of evaluations whose mean is the score of a strip
STRIPS = 5  # number of consecutive strips with falling scores that ends the training


class HoldOut(Callback):
    """End a training if the mean log-likelihood of held-out points falls in five consecutive strips.

    Every ten steps the held-out points are evaluated with new draws. The score of a strip of 50 steps is the
    mean of the last 50 evaluations. Strips count from step `start` on. The final parameters are kept.

    Args:
        likelihood: likelihood of the training.
        x: held-out inputs, `[H, D]`.
        y: held-out targets, `[H, 1]`.
        start: the first strip ends after this step.
        num_samples: draws of an evaluation.
        seed: seed of the draws.
    """

    def __init__(
        self,
        likelihood: gilib.Gaussian,
        x: Tensor,
        y: Tensor,
        *,
        start: int = 5000,
        num_samples: int = 5,
        seed: int = 0,
    ):
        """Store the held-out data."""
        self.likelihood, self.x, self.y = likelihood, x, y
        self.start, self.num_samples, self.seed = start, num_samples, seed
        self.strips = FallingStrips(lambda net: torch.stack(self.scores).mean(), STRIP, STRIPS)
        self.begin()

    def begin(self) -> None:
        """Forget all scores, at the start of a training."""
        self.scores: list[Tensor] = []
        self.strips.begin()

    def __call__(self, step: int, bound: Tensor, net: gilib.Network) -> bool:
        """Evaluate the held-out points, and compare scores at the end of a strip; return whether to stop."""
        if step % SCORE_EVERY == 0 and step > self.start - SCORE_EVERY * SMOOTHED:
            self.scores = [*self.scores, self._score(step, net)][-SMOOTHED:]
        return step > self.start and self.strips(step, bound, net)

    @torch.no_grad()
    def _score(self, step: int, net: gilib.Network) -> Tensor:
        """Return the mean log-likelihood of the held-out points under the mixture over draws."""
        source = torch.Generator(self.x.device).manual_seed(1_000_003 * step + self.seed)
        drawn = net.estimate(self.num_samples, len(self.x), generator=source)
        mean, variance = drawn.moments(self.x)
        return self.likelihood.predictive(mean, None, variance).log_prob(self.y).mean()

    def state_dict(self) -> dict[str, Any]:
        """Return the last evaluations and the state of the strips."""
        return {"scores": list(self.scores), "strips": self.strips.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.scores = list(state["scores"])
        self.strips.load_state_dict(state["strips"])
