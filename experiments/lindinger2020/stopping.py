"""Early stopping as Lindinger et al. (2020), App. G, and their code have it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import gilib
from gilib.training import Callback, FallingStrips

SCORE_EVERY = 10  # steps between two looks at the held-out points
STRIP = 50  # steps of a strip
SMOOTHED = 50  # looks whose mean is the score of a strip
STRIPS = 5  # that fall one after the other


class HoldOut(Callback):
    """Ends a training whose mean log-likelihood of held-out points has fallen in five successive strips.

    Every ten steps the held-out points are scored with new draws; the score at the end of a strip of 50
    steps is the mean of the last 50 scores, and falling counts from step `start` on. Parameters are those of
    the end.

    Args:
        likelihood: of the training.
        x: held-out inputs, `[H, D]`.
        y: their targets, `[H, 1]`.
        start: the first strip ends after this step.
        num_samples: draws of an evaluation.
        seed: of the draws.
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
        """Wait for a training to begin."""
        self.likelihood, self.x, self.y = likelihood, x, y
        self.start, self.num_samples, self.seed = start, num_samples, seed
        self.strips = FallingStrips(lambda net: torch.stack(self.scores).mean(), STRIP, STRIPS)
        self.begin()

    def begin(self) -> None:
        """No score yet."""
        self.scores: list[Tensor] = []
        self.strips.begin()

    def __call__(self, step: int, bound: Tensor, net: gilib.Network) -> bool:
        """Score, and at the end of a strip compare."""
        if step % SCORE_EVERY == 0 and step > self.start - SCORE_EVERY * SMOOTHED:
            self.scores = [*self.scores, self._score(step, net)][-SMOOTHED:]
        return step > self.start and self.strips(step, bound, net)

    @torch.no_grad()
    def _score(self, step: int, net: gilib.Network) -> Tensor:
        """Mean log-likelihood of the held-out points, of the mixture over draws."""
        source = torch.Generator(self.x.device).manual_seed(1_000_003 * step + self.seed)
        drawn = net.estimate(self.num_samples, len(self.x), generator=source)
        mean, variance = drawn.moments(self.x)
        return self.likelihood.predictive(mean, None, variance).log_prob(self.y).mean()

    def state_dict(self) -> dict[str, Any]:
        """The last scores, and what the strips hold."""
        return {"scores": list(self.scores), "strips": self.strips.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.scores = list(state["scores"])
        self.strips.load_state_dict(state["strips"])
