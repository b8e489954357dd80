"""Weights drawn from their prior, without variational parameters (the lower layers of rand→gi)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule


@dataclass(frozen=True)
class FromPrior(Posterior):
    """Q(W) = P(W): the weights' log_pq is zero (Ober & Aitchison, 2021, Sec. 3.2).

    A prior with learned hyper-parameters (`ScalePrior`, `SpatialIWPrior`) still learns their posterior.

    >>> FromPrior().short
    'rand'
    """

    short: ClassVar[str] = "rand"

    def build(
        self, fan_in: int, outputs: int, bias: bool, well_scaled: bool, context: BuildContext
    ) -> PosteriorModule:
        """A module without parameters."""
        return _PriorWeights()


class _PriorWeights(PosteriorModule):
    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        return prior_precision.colour(noise), noise.new_zeros(noise.shape[:-2])
