"""Monte Carlo dropout: weights that are there or not, one coin for every input channel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Fraction
from gilib.draws.functions import Function
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.randomness import Noise, NoiseSize, noise_at
from gilib.regression.primal import prior_log_prob
from gilib.sites import Site


@dataclass(frozen=True)
class Dropout(Posterior):
    """W = diag(z) M with coins z_c ~ Bernoulli(1 - rate), one for each input channel; never for a bias.

    A draw tosses the coins once, so that it is a function; an estimate tosses them at every point, as
    training with dropout does (Gal & Ghahramani, 2016). Q has no density: log_pq is E_Q[log P(W)], the
    Kullback-Leibler term up to the entropy of the coins, which does not depend on M. The objective is no
    bound on the evidence. (The expectation is exact under priors that are independent between channels.)

    Args:
        rate: the probability of a zero.

    >>> Dropout(0.1).short_name
    'dropout'
    """

    short_name: ClassVar[str] = "dropout"
    rate: Fraction = 0.5

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """The weights M `[R, I, O]`."""
        return DroppedWeights(self, site, context)


class DroppedWeights(PosteriorModule):
    """The weights that coins keep or drop.

    Attributes:
        scaled_weights: √I M, `[R, I, O]`.
    """

    carries = False

    def __init__(self, spec: Dropout, site: Site, context: BuildContext):
        """Create the parameter."""
        super().__init__()
        self.site, self.keep = site, 1.0 - spec.rate
        self.noise_size = site.channels - site.bias
        self.threshold = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(2.0 * spec.rate - 1.0).double()))
        self.root_fan_in = math.sqrt(site.fan_in)
        self.scaled_weights = nn.Parameter(context.normal(site.fan_in, site.outputs))

    @property
    def mean_if_kept(self) -> Tensor:
        """M, `[R, I, O]`."""
        return self.scaled_weights / self.root_fan_in

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """With these weights on average over coins: those of channels that are kept are larger."""
        kept = self._rows(weights.new_full((self.noise_size,), self.keep))
        self.scaled_weights.copy_(weights / kept * self.root_fan_in)

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Diag(z) M, the coins tossed once."""
        weights = self._rows(self._coins(noise)) * self.mean_if_kept
        return weights, self._expected_log_prior(prior_precision).expand(noise.shape[:-1])

    @property
    def estimate_size(self) -> NoiseSize:
        """A coin for every channel at every point."""
        return NoiseSize(0, self.noise_size)

    def estimate(
        self,
        features: Tensor | None,
        prior_precision: SymmetricOperator,
        noise: Noise,
        function: Callable[[Tensor], Function],
    ) -> tuple[Function, Tensor]:
        """Masked inputs, the coins tossed at every point."""
        masked = MaskedInputs(function(self.mean_if_kept), self._coins(noise.points), self.site.input_axes)
        return masked, self._expected_log_prior(prior_precision).expand(noise.draw.shape[:-1])

    def _coins(self, noise: Tensor) -> Tensor:
        """Z: one where a standard normal exceeds the quantile of the rate, `[..., channels]`."""
        return (noise > self.threshold).to(noise.dtype)

    def _rows(self, coins: Tensor) -> Tensor:
        """Coins of the channels as factors of the rows of W, `[..., I, 1]`."""
        rows = coins.repeat_interleave(self.site.kernel_pixels, -1)
        if self.site.bias:
            rows = torch.cat([rows, torch.ones_like(rows[..., :1])], -1)
        return rows[..., None]

    def _expected_log_prior(self, prior_precision: SymmetricOperator) -> Tensor:
        """E log P(diag(z) M): within a channel all rows share a coin, and z² = z."""
        like = self.scaled_weights
        roots = self._rows(like.new_full((self.noise_size,), math.sqrt(self.keep)))
        return prior_log_prob(roots * self.mean_if_kept, prior_precision, like.shape[-1])


@dataclass(frozen=True)
class MaskedInputs:
    """x ↦ f(z ∘ x), with coins of their own for each of N points.

    Attributes:
        function: f.
        coins: z, `[S, R, N, C]`.
        input_axes: axes of an input point, the channels first.
    """

    function: Function
    coins: Tensor
    input_axes: int

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate at `x`, `[..., N, C, ...]`."""
        channels = self.coins.shape[-1]
        if x.dim() <= self.input_axes or x.shape[-self.input_axes] != channels:
            raise ValueError(f"dropout has coins for {channels} channels of points, got {list(x.shape)}")
        coins = noise_at(self.coins, x.flatten(x.dim() - self.input_axes, -1), -2)
        return self.function(x * coins.reshape(*coins.shape, *(1,) * (self.input_axes - 1)))
