"""Count the operations of a training step of a structured deep GP."""

from __future__ import annotations

from typing import NamedTuple

from gilib.structured.pattern import Pattern


class Operations(NamedTuple):
    """Additions and multiplications of the matrix products of a step, forward and backward.

    Attributes:
        points: operations of products of points with M × M matrices, R⁻¹ and covariances.
        blocks: operations of products of M × M matrices, which form the covariance from its factor.
    """

    points: int
    blocks: int

    @property
    def total(self) -> int:
        """Sum of both."""
        return self.points + self.blocks


def operations(pattern: Pattern, num_points: int, num_samples: int) -> Operations:
    """Count the operations of a step on N points with S samples; the first layer has no samples yet.

    Each gradient of a product costs as much as the product. A block of the covariance within a layer is a
    quadratic form, whose gradient at the points needs no product (`gilib.projection`).

    >>> from gilib.structured.families import FullyCoupled, MeanField
    >>> few, many = (
    ...     operations(Pattern(family, (5, 5, 1), (128,) * 3), 512, 5).total
    ...     for family in (MeanField(), FullyCoupled())
    ... )
    >>> many > 5 * few
    True
    """
    at_points = blocks = 0
    for layer, size in enumerate(pattern.sizes):
        rows = num_points * (num_samples if layer else 1)
        at_points += 3 * 2 * rows * size**2
        at_points += 2 * 2 * rows * size**2 * len(pattern.between(layer, layer))
        for above in range(layer + 1, len(pattern.sizes)):
            at_points += 3 * 2 * rows * size * pattern.sizes[above] * len(pattern.between(above, layer))
    for r, c in pattern.covariance:
        shared = sum(length for _, _, length in pattern.runs(r, c))
        blocks += (2 if r == c else 3) * 2 * pattern.points[r] * pattern.points[c] * shared
    return Operations(at_points, blocks)
