"""The pattern of a joint Gaussian: which processes there are, and which blocks factor and covariance have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gilib.structured.families import Family, Place


@dataclass(frozen=True)
class Pattern:
    """Processes of all layers in one order, the layers' one after the other, and who is coupled to whom.

    Attributes:
        family: says which blocks the factor has.
        widths: T_l, processes of every layer.
        sizes: M_l, inducing inputs of every layer.
    """

    family: Family
    widths: tuple[int, ...]
    sizes: tuple[int, ...]

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Of every process."""
        return tuple(Place(layer, t) for layer, width in enumerate(self.widths) for t in range(width))

    @cached_property
    def size(self) -> int:
        """How many inducing outputs there are in all."""
        return sum(width * size for width, size in zip(self.widths, self.sizes, strict=True))

    def points(self, process: int) -> int:
        """M of the layer of this process."""
        return self.sizes[self.places[process].layer]

    def of_layer(self, layer: int) -> range:
        """The processes of a layer."""
        first = sum(self.widths[:layer])
        return range(first, first + self.widths[layer])

    @cached_property
    def factor(self) -> tuple[tuple[int, ...], ...]:
        """For every process the columns of its row of the factor, itself last."""
        depth, places = len(self.widths), self.places
        return tuple(
            (*(c for c in range(r) if self.family.couples(places[r], places[c], depth)), r)
            for r in range(len(places))
        )

    @cached_property
    def covariance(self) -> tuple[tuple[int, int], ...]:
        """The blocks (row, column) of the lower triangle of the covariance, from first to last."""
        columns = [set(row) for row in self.factor]
        every = ((r, c) for r in range(len(columns)) for c in range(r + 1))
        return tuple((r, c) for r, c in every if columns[r] & columns[c])

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Groups of processes that do not depend on those of other groups."""
        groups: list[set[int]] = []
        for row in self.factor:
            joined = set(row).union(*(group for group in groups if group & set(row)))
            groups = [group for group in groups if not group & joined] + [joined]
        return tuple(tuple(sorted(group)) for group in sorted(groups, key=min))

    def between(self, layer: int, other: int) -> list[tuple[int, int]]:
        """The blocks of the covariance whose rows are of one layer and columns of another, or the same."""
        rows, columns = self.of_layer(layer), self.of_layer(other)
        return [(r, c) for r, c in self.covariance if r in rows and c in columns]

    @cached_property
    def starts(self) -> tuple[dict[int, int], ...]:
        """For every process, where the blocks of its row of the factor begin, stored side by side."""
        found = []
        for row in self.factor:
            starts, position = {}, 0
            for column in row:
                starts[column] = position
                position += self.points(column)
            found.append(starts)
        return tuple(found)

    def runs(self, row: int, column: int) -> Sequence[tuple[int, int, int]]:
        """Where both rows of the factor have blocks: starts in the one and the other, and lengths.

        Blocks next to each other in both are one run.
        """
        found: list[tuple[int, int, int]] = []
        for process in self.factor[column]:
            if process not in self.starts[row]:
                continue
            at, other, length = self.starts[row][process], self.starts[column][process], self.points(process)
            if found and sum(found[-1][::2]) == at and sum(found[-1][1:]) == other:
                length += found[-1][2]
                at, other = found.pop()[:2]
            found.append((at, other, length))
        return found
