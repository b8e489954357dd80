"""Monte Carlo dropout: each input channel of a layer is kept or dropped at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Fraction
from gilib.draws.functions import Function
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule, WithWeights
from gilib.randomness import Noise, NoiseSize, noise_at
from gilib.regression.primal import prior_log_prob
from gilib.sites import Site


@dataclass(frozen=True)
class Dropout(Posterior):
    """W = diag(z) M, where z_c ~ Bernoulli(1 - rate) for each input channel c; a bias is always kept.

    An estimate samples z anew at each point, as training with dropout does (Gal & Ghahramani, 2016). Q has no
    density, so log_pq is E_Q[log P(W)], which lacks the constant entropy of z, and the objective is not a
    bound on the evidence. The expectation is exact if the prior is independent between channels.

    Args:
        rate: probability that a channel is dropped.

    >>> Dropout(0.1).short_name
    'dropout'
    """

    short_name: ClassVar[str] = "dropout"
    rate: Fraction = 0.5

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        return DroppedWeights(self, site, context)


class DroppedWeights(PosteriorModule):
    """Weights M, stored as √I M, whose input channels are kept or dropped at random."""

    carries = False

    def __init__(self, spec: Dropout, site: Site, context: BuildContext):
        super().__init__()
        self.site, self.keep = site, 1.0 - spec.rate
        self.noise_size = site.channels - site.bias
        # standard normals exceed the threshold with probability `keep`
        self.threshold = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(2.0 * spec.rate - 1.0).double()))
        self.root_fan_in = site.scale
        self.scaled_weights = nn.Parameter(context.normal(site.fan_in, site.outputs))

    @property
    def mean_if_kept(self) -> Tensor:
        """M, the weights before any channel is dropped, `[R, I, O]`."""
        return self.scaled_weights / self.root_fan_in

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """Set M to `weights`, divided by the probability that a row is kept, so that W has this mean."""
        kept = self._rows(weights.new_full((self.noise_size,), self.keep))
        self.scaled_weights.copy_(weights / kept * self.root_fan_in)

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = self._rows(self._coins(noise)) * self.mean_if_kept
        return weights, self._expected_log_prior(prior_precision).expand(noise.shape[:-1])

    @property
    def estimate_size(self) -> NoiseSize:
        return NoiseSize(0, self.noise_size)

    def estimate(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Noise, function: WithWeights
    ) -> tuple[Function, Tensor]:
        masked = MaskedInputs(function(self.mean_if_kept), self._coins(noise.points), self.site.input_axes)
        return masked, self._expected_log_prior(prior_precision).expand(noise.draw.shape[:-1])

    def _coins(self, noise: Tensor) -> Tensor:
        """Return z `[..., channels]` from standard normals: 0 with probability `rate`, else 1."""
        return (noise > self.threshold).to(noise.dtype)

    def _rows(self, coins: Tensor) -> Tensor:
        """Return one factor for each row of W, `[..., I, 1]`: that of its channel, and 1 for the bias."""
        rows = coins.repeat_interleave(self.site.kernel_pixels, -1)
        if self.site.bias:
            rows = torch.cat([rows, torch.ones_like(rows[..., :1])], -1)
        return rows[..., None]

    def _expected_log_prior(self, prior_precision: SymmetricOperator) -> Tensor:
        """Return E[log P(diag(z) M)], `[R]`: the log prior, quadratic in W, of rows times √E[z²] = √E[z]."""
        like = self.scaled_weights
        roots = self._rows(like.new_full((self.noise_size,), math.sqrt(self.keep)))
        return prior_log_prob(roots * self.mean_if_kept, prior_precision, like.shape[-1])


@dataclass(frozen=True)
class MaskedInputs:
    """The function x ↦ f(z ∘ x), with a separate mask z for each of N points."""

    function: Function  # f
    coins: Tensor  # the masks z, `[S, R, N, C]`
    input_axes: int  # number of axes of an input point, of which the first are the channels

    def __call__(self, x: Tensor) -> Tensor:
        channels = self.coins.shape[-1]
        if x.dim() <= self.input_axes or x.shape[-self.input_axes] != channels:
            raise ValueError(f"dropout has coins for {channels} channels of points, got {list(x.shape)}")
        coins = noise_at(self.coins, x.flatten(x.dim() - self.input_axes, -1), -2)
        return self.function(x * coins.reshape(*coins.shape, *(1,) * (self.input_axes - 1)))
