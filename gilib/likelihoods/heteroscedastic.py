"""Gaussian noise whose variance depends on the input, as the mean does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Normal

from gilib.arguments import Scale
from gilib.draws import Moments
from gilib.likelihoods.base import check_pairs
from gilib.likelihoods.gaussian import NoisePerTarget, gaussians, scored
from gilib.likelihoods.mixtures import GaussianPrediction

if TYPE_CHECKING:
    from gilib.data import Normalisation
    from gilib.draws import Drawn

NODES = 20  # Gaussians that approximate one whose variance is uncertain


class HeteroscedasticGaussian(NoisePerTarget):
    """Gaussian noise with a variance that the network predicts, y_o ~ N(f_o, σ_o² exp(g_o)).

    For O targets, the network has 2 · O outputs: first f, then g. If f ~ N(m, v) and g ~ N(μ, τ) are
    independent, as outputs of processes side by side are (`gilib.layers.Concat`), the expected log-likelihood
    has a closed form (Lázaro-Gredilla & Titsias, 2011),

        E log N(y; f, σ² eᵍ) = -½ [((y - m)² + v) exp(τ/2 - μ) / σ² + μ + log σ² + log 2π].

    Args:
        noise_variance: σ_o² for every target, the noise variance where g is 0; initial values if they are
            learned.
        learn: whether σ_o² are learned, as point estimates.
        replicas: shape of the replica axes, if every replica has its own σ_o².

    >>> likelihood = HeteroscedasticGaussian([0.25])
    >>> likelihood.log_prob(torch.zeros(3, 5, 2), torch.zeros(5, 1)).shape
    torch.Size([3, 5])
    """

    def __init__(self, noise_variance: Sequence[Scale], learn: bool = True, replicas: tuple[int, ...] = ()):
        super().__init__(noise_variance, learn, replicas)
        self.num_outputs = 2 * len(self.start)

    def target_moments(self, outputs: Tensor) -> Moments:
        mean, log_variance = self._parts(outputs)
        return Moments(mean, log_variance.exp())

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """Return the expectation, `[S, R, N]`, nats, in closed form or else estimated from one sample."""
        outputs, variance = functions.moments(x)
        if variance is None:
            return self.log_prob(outputs, targets)
        (mean, log_variance), (spread, doubt) = self._parts(outputs), variance.chunk(2, -1)
        check_pairs(targets, mean)
        return scored((mean - targets).square() + spread, log_variance, 0.5 * doubt - log_variance)

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> GaussianPrediction:
        """Return a mixture of Gaussians around f; where g is uncertain, twenty for each draw.

        The twenty Gaussians have equally probable values of g. These are bounded, which makes the far tails
        too light: with g ~ N(μ, τ), the standard deviation is low by 1 % at τ = 1 and by 13 % at τ = 4, and
        an interval of 99.9 % covers 99.84 % and 99.71 %. Intervals up to 99 % and mean scores are right.
        """
        mean, log_variance = self._parts(outputs)
        if variance is None:
            return gaussians(mean, log_variance.exp(), normalisation)
        spread, doubt = variance.chunk(2, -1)
        nodes = _standard_normal(NODES).to(outputs).reshape(-1, *[1] * outputs.dim())
        noise = (log_variance + doubt.sqrt() * nodes).exp() + spread  # [nodes, S, R, N, O]
        return gaussians(mean.expand_as(noise).flatten(0, 1), noise.flatten(0, 1), normalisation)

    def _parts(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return f and log σ² + g, both `[S, R, N, O]`."""
        self.check_outputs(outputs)
        mean, log_ratio = outputs.chunk(2, -1)
        return mean, log_ratio + self.log_variance.to(outputs)[..., None, :]


def _standard_normal(count: int) -> Tensor:
    """Return the medians of `count` equally probable parts of a normal distribution, scaled to variance 1."""
    middles = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    nodes = Normal(0.0, 1.0).icdf(middles)
    return nodes / nodes.square().mean().sqrt()
