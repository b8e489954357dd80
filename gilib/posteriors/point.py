"""A point estimate: a posterior that is concentrated at one value of the weights, or of inducing outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, OwnInducing, PosteriorModule
from gilib.regression.primal import prior_log_prob
from gilib.sites import InducingOutputs, Site


@dataclass(frozen=True)
class PointEstimate(OwnInducing):
    """Q(W) = δ(W - Ŵ), which becomes the maximum a posteriori (MAP) estimate if it is trained on the ELBO.

    It is also one state of `SGHMC`. A point mass has no density, so log_pq is log P(Ŵ), and the objective is
    the log joint density of targets and weights, not a bound on the evidence. Ŵ starts as a draw from
    NealPrior and is stored multiplied by √I.

    In a Gaussian process, ŵ are the whitened inducing outputs, u = R ŵ, which start at zero. The exponential
    of the objective, as a function of u, is up to a constant the optimal Q(u), Gaussian or not (Hensman,
    Matthews, Filippone & Ghahramani, 2015).

    Args:
        num_inducing: M of a Gaussian process; None: as many as the network has inducing points.

    >>> PointEstimate().short_name
    'map'
    """

    short_name: ClassVar[str] = "map"

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        if isinstance(site, InducingOutputs):
            return PointWeights(context.full((site.fan_in, site.outputs), 0.0), site.scale)
        if self.num_inducing is not None:
            raise ValueError(
                f"PointEstimate(num_inducing={self.num_inducing}) is over the inducing outputs of a Gaussian "
                "process; a point estimate of weights has no inducing points: write PointEstimate()"
            )
        return PointWeights(context.normal(site.fan_in, site.outputs), site.scale)


class PointWeights(PosteriorModule):
    """The unknowns of a point estimate; a draw needs no noise.

    Args:
        start: initial value of the stored parameter, `[R, I, O]`.
        scale: the stored parameter divided by this number gives the unknowns.

    Attributes:
        scaled_weights: the stored parameter, `[R, I, O]`: √I Ŵ, or ŵ for a Gaussian process.
    """

    noise_size = 0

    def __init__(self, start: Tensor, scale: float):
        super().__init__()
        self.scale = scale
        self.scaled_weights = nn.Parameter(start)

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        self.scaled_weights.copy_(weights * self.scale)

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = self.scaled_weights / self.scale
        weights = weights.expand(*noise.shape[:-1], *weights.shape[-2:])
        return weights, prior_log_prob(weights, prior_precision, weights.shape[-1])
