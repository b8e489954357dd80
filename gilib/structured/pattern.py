"""The pattern of a joint Gaussian: which processes there are, and which blocks factor and covariance have."""

from __future__ import annotations

from itertools import accumulate

from gilib.structured.families import Family, ProcessIndex

Block = tuple[int, int]


class Pattern:
    """Processes of all layers in one order, the layers' one after the other, and who is coupled to whom.

    Args:
        family: says which blocks the factor has.
        widths: T_l, processes of every layer.
        sizes: M_l, inducing inputs of every layer.

    Attributes:
        places: of every process.
        points: M of every process's layer.
        layers: the processes of every layer.
        size: how many inducing outputs there are in all.
        factor: for every process the columns of its row of the factor, itself last.
        starts: for every process, where the blocks of its row begin if they are stored side by side.
        covariance: the blocks (row, column) of the lower triangle of the covariance, from first to last.
        components: groups of processes that do not depend on those of other groups.

    >>> from gilib.structured.families import StripesAndArrow
    >>> Pattern(StripesAndArrow(), (2, 2, 1), (3, 3, 3)).factor
    ((0,), (1,), (0, 2), (1, 3), (0, 1, 2, 3, 4))
    """

    def __init__(self, family: Family, widths: tuple[int, ...], sizes: tuple[int, ...]):
        """Work everything out, once."""
        self.family, self.widths, self.sizes = family, widths, sizes
        self.places = tuple(
            ProcessIndex(layer, t) for layer, width in enumerate(widths) for t in range(width)
        )
        self.points = tuple(sizes[place.layer] for place in self.places)
        ends = list(accumulate(widths))
        self.layers = tuple(range(end - width, end) for end, width in zip(ends, widths, strict=True))
        self.size = sum(self.points)
        self.factor = tuple(
            (*(c for c in range(r) if self._coupled(r, c)), r) for r in range(len(self.places))
        )
        self.starts = tuple(
            dict(zip(row, accumulate((self.points[c] for c in row), initial=0), strict=False))
            for row in self.factor
        )
        pairs = ((r, c) for r in range(len(self.places)) for c in range(r + 1))
        self.covariance = tuple((r, c) for r, c in pairs if set(self.factor[r]) & set(self.factor[c]))
        self.components = self._components()
        self._runs = {block: self._shared(*block) for block in self.covariance}

    def _coupled(self, row: int, column: int) -> bool:
        answer: object = self.family.couples(self.places[row], self.places[column], len(self.widths))
        if not isinstance(answer, bool):
            raise TypeError(f"{type(self.family).__name__}.couples must return True or False, got {answer!r}")
        return answer

    def _components(self) -> tuple[tuple[int, ...], ...]:
        groups: list[set[int]] = []
        for row in self.factor:
            joined = set(row).union(*(group for group in groups if group & set(row)))
            groups = [group for group in groups if not group & joined] + [joined]
        return tuple(tuple(sorted(group)) for group in sorted(groups, key=min))

    def _shared(self, row: int, column: int) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        for process in self.factor[column]:
            if process not in self.starts[row]:
                continue
            at, other, length = self.starts[row][process], self.starts[column][process], self.points[process]
            if found and found[-1][0] + found[-1][2] == at and found[-1][1] + found[-1][2] == other:
                at, other, before = found.pop()
                length += before
            found.append((at, other, length))
        return found

    def between(self, layer: int, other: int) -> list[Block]:
        """The blocks of the covariance whose rows are of one layer and columns of another, or the same."""
        rows, columns = self.layers[layer], self.layers[other]
        return [(r, c) for r, c in self.covariance if r in rows and c in columns]

    def runs(self, row: int, column: int) -> list[tuple[int, int, int]]:
        """Where the rows of two processes both have blocks: starts in the one and the other, and lengths.

        Blocks next to each other in both are one run.
        """
        return self._runs[row, column]
