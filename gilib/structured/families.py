"""Which inducing outputs depend on which: families of Gaussians over those of all layers.

A family is a pattern: which blocks the lower triangular Cholesky factor of the whitened covariance has. The
covariance, its products, the divergence and the marginals follow from the pattern (`gilib.structured`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from gilib.arguments import Positive
from gilib.config import Specification


@dataclass(frozen=True, order=True)
class ProcessIndex:
    """Where a process is.

    Attributes:
        layer: from 0.
        index: among those of its layer, from 0.
    """

    layer: int
    index: int


@dataclass(frozen=True)
class Family(Specification, ABC):
    """A specification of a joint Gaussian over the inducing outputs of all layers.

    To write one, say which processes are coupled; `check` refuses architectures that it is not for. A block
    of the factor is there, dense, or it is zero: products skip it then, whatever the pattern, and no family
    needs arithmetic of its own.

    Attributes:
        initial_scale: the factor starts as this times the prior's; None: 1 in the last layer and 0.1 below,
            so that layers begin near their mean functions. The authors start at 1e-5 there, and need more
            steps: see `gilib.FreeGaussian`.
    """

    initial_scale: Positive | None = None

    @abstractmethod
    def couples(self, row: ProcessIndex, column: ProcessIndex, depth: int) -> bool:
        """Whether the factor has the block of these two processes, `row` after `column`; L layers deep.

        True or False, or building a network raises TypeError.
        """

    def check(self, widths: Sequence[int]) -> None:  # noqa: B027 (optional)
        """Raise ValueError unless the family is for layers of these widths; any by default."""


@dataclass(frozen=True)
class MeanField(Family):
    """Every process by itself: the doubly stochastic deep GP (Salimbeni & Deisenroth, 2017).

    >>> MeanField().couples(ProcessIndex(1, 0), ProcessIndex(0, 0), 2)
    False
    """

    def couples(self, row: ProcessIndex, column: ProcessIndex, depth: int) -> bool:
        """Never."""
        return False


@dataclass(frozen=True)
class FullyCoupled(Family):
    """Every process depends on every other one (Lindinger et al., 2020, Sec. 3.1).

    >>> FullyCoupled().couples(ProcessIndex(1, 0), ProcessIndex(0, 0), 2)
    True
    """

    def couples(self, row: ProcessIndex, column: ProcessIndex, depth: int) -> bool:
        """Always."""
        return True


@dataclass(frozen=True)
class StripesAndArrow(Family):
    """The dependences that mean functions and the output suggest (ibid., Sec. 3.2).

    Stripes: processes at the same place of hidden layers, which the mean functions connect. Arrow: the output
    and every process below. The covariance has the pattern of its factor. For hidden layers of one width and
    a single output.

    >>> above, below, other = ProcessIndex(1, 3), ProcessIndex(0, 3), ProcessIndex(0, 2)
    >>> StripesAndArrow().couples(above, below, 3), StripesAndArrow().couples(above, other, 3)
    (True, False)
    """

    def couples(self, row: ProcessIndex, column: ProcessIndex, depth: int) -> bool:
        """The same place of another hidden layer, or the last layer."""
        return row.layer == depth - 1 or (row.index == column.index and row.layer != column.layer)

    def check(self, widths: Sequence[int]) -> None:
        """Hidden layers have one width, the last is of width 1."""
        *hidden, last = widths
        if last != 1 or len(set(hidden)) > 1:
            raise ValueError(
                "StripesAndArrow is for hidden layers of one width and a single output, got widths "
                f"{list(widths)}: use FullyCoupled, which takes any, or MeanField"
            )
