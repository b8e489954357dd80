"""Early stopping as in Lindinger et al. (2020), App. G, and their code."""

from __future__ import annotations

import torch
from torch import Tensor

import gilib
from gilib.training import Callback

SCORE_EVERY = 10  # steps between two evaluations of the held-out points
STRIP = 50  # steps of a strip
SMOOTHED = 50  # number of evaluations whose mean is the score of a strip
STRIPS = 5  # number of consecutive strips with falling scores that ends the training


class HoldOut(Callback):
    """End a training if the mean log-likelihood of held-out points falls in five consecutive strips.

    Every ten steps the held-out points are evaluated with new draws. The score of a strip of 50 steps is the
    mean of the last 50 evaluations. Strips count from step `start` on. The final parameters are kept. This is
    the criterion UP of Prechelt (Early stopping - but when?, 1998).

    Args:
        likelihood: likelihood of the training.
        x: held-out inputs, `[H, D]`.
        y: held-out targets, `[H, 1]`.
        start: the first strip ends after this step.
        num_samples: draws of an evaluation.
        seed: seed of the draws.
    """

    remembers = ("scores", "last", "falls")
    reads_only = True

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
        self.begin()

    def begin(self) -> None:
        """Forget all scores, at the start of a training."""
        self.scores: list[Tensor] = []
        self.last, self.falls = -float("inf"), 0  # score of the last strip, successive strips that fell

    def __call__(self, step: int, bound: Tensor, net: gilib.Network) -> bool:
        """Evaluate the held-out points, and compare scores at the end of a strip; return whether to stop."""
        if step % SCORE_EVERY == 0 and step > self.start - SCORE_EVERY * SMOOTHED:
            self.scores = [*self.scores, self._score(step, net)][-SMOOTHED:]
        if step <= self.start or step % STRIP:
            return False
        score = float(torch.stack(self.scores).mean())
        self.falls = self.falls + 1 if score < self.last else 0
        self.last = score
        return self.falls >= STRIPS

    @torch.no_grad()
    def _score(self, step: int, net: gilib.Network) -> Tensor:
        """Return the mean log-likelihood of the held-out points under the mixture over draws."""
        source = torch.Generator(self.x.device).manual_seed(1_000_003 * step + self.seed)
        drawn = net.estimate(self.num_samples, len(self.x), generator=source)
        mean, variance = drawn.moments(self.x)
        return self.likelihood.predictive(mean, None, variance).log_prob(self.y).mean()
