"""What a prior is: a frozen specification, and the module that a layer builds from it."""

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
        noise_size: how many standard normals a draw of the hyper-parameters takes.
    """

    noise_size: int = 0

    @abstractmethod
    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        """The precision of the weights and log P - log Q of the hyper-parameters.

        Args:
            noise: standard normals, `[S, R, noise_size]`.

        Returns:
            An operator `[S, R, I, I]` (or without leading axes when nothing is drawn) and `[S, R]` nats (or a
            zero).
        """


@dataclass(frozen=True, repr=False)
class Prior(Specification, ABC):
    """A specification of a prior.

    Attributes:
        well_scaled: whether float32 factorisations suffice. Under StandardPrior features grow from layer to
            layer and condition numbers reach 1e10, so `factor_dtype="auto"` factorises in float64 there.
    """

    well_scaled: ClassVar[bool] = True

    @abstractmethod
    def build(self, site: Site, like: Tensor) -> PriorModule:
        """Build the module for the unknowns of a site, I = channels · kernel_pixels.

        Args:
            site: what the prior is over.
            like: an empty tensor `[R]` whose shape, dtype and device new parameters take.
        """
