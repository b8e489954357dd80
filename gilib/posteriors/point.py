"""A point estimate: the posterior that is one set of weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.regression import prior_log_prob
from gilib.sites import Site


@dataclass(frozen=True)
class PointEstimate(Posterior):
    """Q(W) = δ(W - Ŵ): trained on the ELBO, the maximum a posteriori (MAP) estimate.

    A point has no density; log_pq is log P(Ŵ), so that the objective is the log joint density of targets and
    weights. It is no bound on the evidence. The stored parameter is √I Ŵ, which starts as a draw from
    NealPrior.

    >>> PointEstimate().short
    'map'
    """

    short: ClassVar[str] = "map"

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """The weights `[R, I, O]`."""
        return PointWeights(site, context)


class PointWeights(PosteriorModule):
    """The weights of a point estimate; a draw takes no noise.

    Attributes:
        scaled_weights: √I Ŵ, `[R, I, O]`.
    """

    def __init__(self, site: Site, context: BuildContext):
        """Create the parameter."""
        super().__init__()
        self.root_fan_in = math.sqrt(site.fan_in)
        self.scaled_weights = nn.Parameter(context.normal(site.fan_in, site.outputs))

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Ŵ, as often as there are samples, and log P(Ŵ)."""
        weights = (self.scaled_weights / self.root_fan_in).expand(
            *noise.shape[:-1], *self.scaled_weights.shape[-2:]
        )
        return weights, prior_log_prob(weights, prior_precision, weights.shape[-1])
