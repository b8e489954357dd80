"""Families of joint Gaussians: which blocks of the whitened covariance's Cholesky factor are not zero."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from gilib.arguments import Positive
from gilib.config import Specification


@dataclass(frozen=True, order=True)
class ProcessIndex:
    """The place of a process.

    Attributes:
        layer: number of its layer, from 0.
        index: its number within the layer, from 0.
    """

    layer: int
    index: int


@dataclass(frozen=True)
class Family(Specification, ABC):
    """A specification of a joint Gaussian over the inducing outputs of all layers.

    A new family must define `couples`, and may define `check` to refuse architectures that it is not made
    for. It needs no arithmetic of its own.

    Attributes:
        initial_scale: the initial factor is this times the prior's. None: 1 in the last layer and 0.1 below,
            as in `gilib.FreeGaussian`.
    """

    initial_scale: Positive | None = None

    @abstractmethod
    def couples(self, row: ProcessIndex, column: ProcessIndex, depth: int) -> bool:
        """Return whether the factor has a block for two processes.

        A network cannot be built, and raises TypeError, if the answer is neither True nor False.

        Args:
            row: the later process.
            column: the earlier process.
            depth: L, the number of layers.
        """

    def check(self, widths: Sequence[int]) -> None:  # noqa: B027 (optional)
        """Raise ValueError unless the family is made for layers of these widths; by default, it always is."""


@dataclass(frozen=True)
class MeanField(Family):
    """All processes are independent: the doubly stochastic deep GP (Salimbeni & Deisenroth, 2017).

    >>> MeanField().couples(ProcessIndex(1, 0), ProcessIndex(0, 0), 2)
    False
    """

    def couples(self, row: ProcessIndex, column: ProcessIndex, depth: int) -> bool:
        return False


@dataclass(frozen=True)
class FullyCoupled(Family):
    """Every process depends on every other one (Lindinger et al., 2020, Sec. 3.1).

    >>> FullyCoupled().couples(ProcessIndex(1, 0), ProcessIndex(0, 0), 2)
    True
    """

    def couples(self, row: ProcessIndex, column: ProcessIndex, depth: int) -> bool:
        return True


@dataclass(frozen=True)
class StripesAndArrow(Family):
    """Couples processes that mean functions connect, and all with the output (Lindinger et al., 2020).

    Stripes couple processes that have the same index in different hidden layers, where mean functions connect
    them. An arrow couples the output with every process below. The covariance has the same pattern as its
    factor. All hidden layers must have one width, and there must be a single output.

    >>> above, below, other = ProcessIndex(1, 3), ProcessIndex(0, 3), ProcessIndex(0, 2)
    >>> StripesAndArrow().couples(above, below, 3), StripesAndArrow().couples(above, other, 3)
    (True, False)
    """

    def couples(self, row: ProcessIndex, column: ProcessIndex, depth: int) -> bool:
        return row.layer == depth - 1 or (row.index == column.index and row.layer != column.layer)

    def check(self, widths: Sequence[int]) -> None:
        *hidden, last = widths
        if last != 1 or len(set(hidden)) > 1:
            raise ValueError(
                "StripesAndArrow is for hidden layers of one width and a single output, got widths "
                f"{list(widths)}: use FullyCoupled or MeanField, which allow any widths"
            )
