"""The base classes of priors: the frozen specification, and the module that a layer builds from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from gilib.config import Specification
from gilib.linalg import SymmetricOperator
from gilib.sites import Site


class PriorModule(nn.Module, ABC):
    """A prior inside a layer.

    Attributes:
        noise_size: number of standard normals that a draw of the hyper-parameters needs.
    """

    noise_size: int = 0

    @abstractmethod
    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        """Draw the precision of the weights, and return it with log P - log Q of the hyper-parameters.

        Args:
            noise: standard normals, `[S, R, noise_size]`.

        Returns:
            An operator `[S, R, I, I]` and `[S, R]` nats. If nothing is drawn, both may lack leading axes.
        """


@dataclass(frozen=True, repr=False)
class Prior(Specification, ABC):
    """A specification of a prior.

    Attributes:
        well_scaled: whether float32 factorisations suffice. If not, because features grow from layer to
            layer, `factor_dtype="auto"` factorises in float64.
    """

    well_scaled: ClassVar[bool] = True

    @abstractmethod
    def build(self, site: Site, like: Tensor) -> PriorModule:
        """Build the module for the weights of a site.

        Args:
            site: the weights, or other unknowns, that the prior is over.
            like: a tensor `[R]` with the shape, dtype and device of new parameters.
        """
