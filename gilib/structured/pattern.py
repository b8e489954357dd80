"""The pattern of a joint Gaussian: its processes, and the blocks of its factor and of its covariance."""

from __future__ import annotations

from itertools import accumulate

from gilib.structured.families import Family, ProcessIndex

Block = tuple[int, int]


class Pattern:
    """All processes in one order, layer by layer, and which of them are coupled.

    Args:
        family: decides which blocks the factor has.
        widths: T_l, the number of processes in every layer.
        sizes: M_l, the number of inducing inputs of every layer.

    Attributes:
        places: layer and index of every process.
        points: number of inducing inputs of every process.
        layers: the processes of every layer.
        size: number of inducing outputs of all processes together.
        factor: for every process, the columns of its row of the factor, in order; the last is the process
            itself.
        starts: for every process, where each block of its row begins when they are stored side by side.
        covariance: the nonzero blocks (row, column) in the lower triangle of the covariance, in order.
        components: groups of processes; processes of different groups are independent.

    Raises:
        TypeError: if `family.couples` returns anything but True or False.

    >>> from gilib.structured.families import StripesAndArrow
    >>> Pattern(StripesAndArrow(), (2, 2, 1), (3, 3, 3)).factor
    ((0,), (1,), (0, 2), (1, 3), (0, 1, 2, 3, 4))
    """

    def __init__(self, family: Family, widths: tuple[int, ...], sizes: tuple[int, ...]):
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
        # S_rc = Σ_k C_rk C_ckᵀ is zero unless the rows of r and c share a column k
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
        """Merge the rows of the factor that share a column into groups."""
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
            # a block that follows the last run in both rows lengthens it
            if found and found[-1][0] + found[-1][2] == at and found[-1][1] + found[-1][2] == other:
                at, other, before = found.pop()
                length += before
            found.append((at, other, length))
        return found

    def between(self, layer: int, other: int) -> list[Block]:
        """Return the covariance's blocks with rows of layer `layer` and columns of layer `other`."""
        rows, columns = self.layers[layer], self.layers[other]
        return [(r, c) for r, c in self.covariance if r in rows and c in columns]

    def runs(self, row: int, column: int) -> list[tuple[int, int, int]]:
        """Return the runs of blocks of both rows, as triples (start in `row`, start in `column`, length)."""
        return self._runs[row, column]
