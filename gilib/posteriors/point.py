"""A point estimate: the posterior that is one set of weights, or of inducing outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Count
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, InducingPosterior, PosteriorModule
from gilib.posteriors.inducing import own_points
from gilib.regression.primal import prior_log_prob
from gilib.sites import InducingOutputs, Site


@dataclass(frozen=True)
class PointEstimate(InducingPosterior):
    """Q(W) = δ(W - Ŵ): trained on the ELBO, the maximum a posteriori (MAP) estimate; a state of `SGHMC`.

    A point has no density; log_pq is log P(Ŵ), so that the objective is the log joint density of targets and
    weights. It is no bound on the evidence. The stored parameter is √I Ŵ, which starts as a draw from
    NealPrior.

    Of a Gaussian process it is the whitened inducing outputs, u = R ŵ, which start at zero. Given u the
    points stay random, and the objective has the expectation of their log likelihood under P(f | u): its
    exponential is, up to a constant, the best of all Q(u), Gaussian or not (Hensman, Matthews, Filippone &
    Ghahramani, 2015).

    Args:
        num_inducing: M of a layer of Gaussian processes; None: as many as the network's inducing points.

    >>> PointEstimate().short_name
    'map'
    """

    short_name: ClassVar[str] = "map"
    num_inducing: Count | None = None

    def points(self, context: BuildContext) -> int:
        """Its own, or as many as the network has."""
        return own_points(self.num_inducing, context, "PointEstimate")

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """The unknowns `[R, I, O]`."""
        if isinstance(site, InducingOutputs):
            return PointWeights(context.full((site.fan_in, site.outputs), 0.0), 1.0)
        if self.num_inducing is not None:
            raise ValueError(
                f"PointEstimate(num_inducing={self.num_inducing}) is over the inducing outputs of a Gaussian "
                "process; a point estimate of weights has no inducing points: write PointEstimate()"
            )
        return PointWeights(context.normal(site.fan_in, site.outputs), math.sqrt(site.fan_in))


class PointWeights(PosteriorModule):
    """The unknowns of a point estimate; a draw takes no noise.

    Args:
        start: of the parameter, `[R, I, O]`.
        scale: by which the parameter is divided.

    Attributes:
        scaled_weights: √I Ŵ, of inducing outputs ŵ itself, `[R, I, O]`.
    """

    def __init__(self, start: Tensor, scale: float):
        """Create the parameter."""
        super().__init__()
        self.scale = scale
        self.scaled_weights = nn.Parameter(start)

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """At these weights."""
        self.scaled_weights.copy_(weights * self.scale)

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Ŵ, as often as there are samples, and log P(Ŵ)."""
        weights = (self.scaled_weights / self.scale).expand(
            *noise.shape[:-1], *self.scaled_weights.shape[-2:]
        )
        return weights, prior_log_prob(weights, prior_precision, weights.shape[-1])
