"""Weights drawn from their prior, without parameters of a posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.sites import Site


@dataclass(frozen=True)
class FromPrior(Posterior):
    """Q(W) = P(W), so that log_pq of the weights is zero (Ober & Aitchison, 2021, Sec. 3.2).

    The posterior of random hyper-parameters (`ScalePrior`, `SpatialIWPrior`) is still learned.

    >>> FromPrior().short_name
    'rand'
    """

    short_name: ClassVar[str] = "rand"

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        return _PriorWeights(site)


class _PriorWeights(PosteriorModule):
    def __init__(self, site: Site):
        super().__init__()
        self.shape = site.fan_in, site.outputs
        self.noise_size = site.fan_in * site.outputs

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = prior_precision.sqrt_inv_matmul(noise.unflatten(-1, self.shape))
        return weights, noise.new_zeros(noise.shape[:-1])
