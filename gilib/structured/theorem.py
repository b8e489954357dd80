"""Theorem 1 of Lindinger et al. (2020): all inducing outputs integrated out, at one point at a time.

Let w ~ N(m, S) jointly over all layers, and a_l = R_l⁻¹ k_l(Z_l, f^{l-1}) for layer l at one point. For
processes t of layer l and t' of layer l', define

    μ̃_t = a_lᵀ m_t (+ mean function),    S̃_tt' = δ_tt' (k_l(f, f) - |a_l|²) + a_lᵀ S_tt' a_l'

Sampled one after the other, the layers' outputs behave as if they were N(μ̃, S̃) together. Those of layer l,
given all outputs before, have

    mean        μ̃_l + S̃_{l,<l} S̃_{<l,<l}⁻¹ (f_{<l} - μ̃_{<l})        (Eq. 10)
    covariance  S̃_ll - S̃_{l,<l} S̃_{<l,<l}⁻¹ S̃_{<l,l}                (Eq. 11)

No system is solved, because the Cholesky factor G of S̃ grows row by row (App. E):
f_t = μ̃_t + Σ_{t'≤t} G_tt' ε_t'. Entries that the pattern of S makes zero are neither stored nor computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from gilib.draws import GaussianFunction, Moments
from gilib.draws.functions import Function, total
from gilib.processes import Inducing, positive
from gilib.projection import Columns, project_columns, side_by_side
from gilib.randomness import noise_at
from gilib.structured.gaussian import JointDistribution


@dataclass(frozen=True)
class Recursion(GaussianFunction):
    """An estimate: samples each point through all layers, with all inducing outputs integrated out."""

    processes: Sequence[Inducing]  # prior of every layer at its inducing inputs
    means: Sequence[Function | None]  # mean function of every layer; None: zero
    joint: JointDistribution  # distribution of the whitened inducing outputs of all layers
    noise: Tensor  # ε, `[S, R, N, Q]`, one normal for every process

    def __call__(self, x: Tensor) -> Tensor:
        return self.outputs(x)[-1]

    def outputs(self, x: Tensor) -> list[Tensor]:
        """Sample every layer at `x`, `[S, R, N, T_l]`."""
        below, points, last, mean = self._up(x)
        return [*below, points.sampled(last, mean)]

    def moments(self, x: Tensor) -> Moments:
        _, points, last, mean = self._up(x)
        if points.coupled(last):
            return Moments(points.sampled(last, mean))
        return points.moments(last, mean)

    def marginals(self, x: Tensor) -> Moments:
        _, points, last, mean = self._up(x)
        return points.moments(last, mean)

    def _up(self, x: Tensor) -> tuple[list[Tensor], PointFactor, range, Tensor]:
        """Return samples of all layers but the last, the factor, the last layer's processes, and their μ̃."""
        noise_at(self.noise, self.processes[0].points(x), -2)
        points = PointFactor(self.noise)
        below: list[Tensor] = []
        fields: dict[tuple[int, int], Tensor] = {}
        for layer, (process, function) in enumerate(zip(self.processes, self.means, strict=True)):
            rows = self.joint.pattern.layers[layer]
            mean = self._grow(process, layer, process.points(x), fields, points)
            mean = mean if function is None else mean + function(x)
            if layer < len(self.processes) - 1:
                x = points.sampled(rows, mean)
                below.append(x)
        return below, points, rows, mean

    def _grow(
        self,
        process: Inducing,
        layer: int,
        x: Tensor,
        fields: dict[tuple[int, int], Tensor],
        points: PointFactor,
    ) -> Tensor:
        """Add a layer's rows to the Cholesky factor, and return aᵀ m, `[S, R, N, T_l]`.

        `fields` holds products of covariance blocks with a, by (later layer, earlier layer). This layer uses
        up those for it, and adds its own.
        """
        pattern = self.joint.pattern
        places = {source: pattern.between(layer, source) for source in range(layer + 1)}
        from_below = [source for source in range(layer) if (layer, source) in fields]
        targets = [above for above in range(layer + 1, len(pattern.widths)) if pattern.between(above, layer)]
        dtype = process.arithmetic(x, self.joint.means[layer])
        at = project_columns(
            process.kernel.unevaluated(x.to(dtype), process.inputs),
            process.inverse.to(dtype),
            self._columns(layer, targets, dtype),
            [fields.pop((layer, source)).to(dtype) for source in from_below],
        ).to(x.dtype)
        fields |= {(above, layer): field for above, field in zip(targets, at.onward, strict=True)}
        assert at.forms is not None
        covariances = dict(zip(places[layer], at.forms.unbind(-1), strict=True))
        for source, cross in zip(from_below, at.crosses, strict=True):
            covariances |= dict(zip(places[source], cross.unbind(-1), strict=True))
        prior = process.kernel.diagonal(x)
        for row in pattern.layers[layer]:
            own = {column: value for (r, column), value in covariances.items() if r == row}
            points.grow(own, prior - at.square[..., 0], prior)
        return at.mean

    def _columns(self, layer: int, targets: Sequence[int], dtype: torch.dtype) -> Columns:
        """Return the factors of this layer's a: its own blocks, those of later layers, and its means."""
        pattern, blocks, mean = self.joint.pattern, self.joint.covariance, self.joint.means[layer]
        # `Columns` wants symmetric matrices, and aᵀ S a depends only on the symmetric part of S
        own = [
            blocks[r, c] if r == c else 0.5 * (blocks[r, c] + blocks[r, c].mT)
            for r, c in pattern.between(layer, layer)
        ]
        onward = [[blocks[place].mT for place in pattern.between(above, layer)] for above in targets]
        values = side_by_side([*own, *chain.from_iterable(onward), mean]).to(dtype)
        widths = tuple(sum(block.shape[-1] for block in group) for group in onward)
        return Columns(values, len(own), mean.shape[-1], widths)


class PointFactor:
    """The Cholesky factor G of S̃ at every point, which grows by a row for each process.

    Attributes:
        noise: ε of every process, `[S, R, N]` each.
        rows: nonzero entries of every row by their columns, `[..., N]` each; the last is on the diagonal.
    """

    def __init__(self, noise: Tensor):
        self.noise = noise.unbind(-1)
        self.rows: list[dict[int, Tensor]] = []

    def grow(self, covariances: dict[int, Tensor], alone: Tensor, prior: Tensor) -> None:
        """Add the row of the next process t, given terms `[..., N]`.

        They are aᵀ S_tt' a' by column t', including t itself; `alone` = k - |a|², the variance of the process
        given its inducing outputs; and `prior` = k, which sets the size of rounding errors.
        """
        place = len(self.rows)
        row: dict[int, Tensor] = {}
        for column, above in enumerate(self.rows):
            entry = less_products(covariances.get(column), row, above)
            if entry is not None:
                row[column] = entry / above[column]
        variance = less_products(alone + covariances[place], row, row)
        assert variance is not None
        row[place] = positive(variance, prior).sqrt()
        self.rows.append(row)

    def sampled(self, rows: range, mean: Tensor) -> Tensor:
        """Return samples of the processes in `rows`, `[S, R, N, T]`, given their μ̃, `[..., N, T]`."""
        return mean + torch.stack([self._spread(row, range(row + 1)) for row in rows], -1)

    def coupled(self, rows: range) -> bool:
        """Return whether some processes in `rows` depend on each other given all processes before them."""
        return any(column in rows for row in rows for column in self.rows[row] if column != row)

    def moments(self, rows: range, mean: Tensor) -> Moments:
        """Return mean and variance of each process in `rows` given all layers below, `[S, R, N, T]`."""
        before = range(rows.start)
        mean = mean + torch.stack([self._spread(row, before) for row in rows], -1)
        squares = [total(entry.square() for c, entry in self.rows[row].items() if c in rows) for row in rows]
        return Moments(mean, torch.stack(squares, -1).expand(mean.shape))

    def _spread(self, row: int, columns: range) -> Tensor:
        """Return Σ_t' G_tt' ε_t' over the given columns, `[S, R, N]`."""
        parts = [entry * self.noise[c] for c, entry in self.rows[row].items() if c in columns]
        return total([torch.zeros_like(self.noise[row]), *parts])


def less_products(value: Tensor | None, row: dict[int, Tensor], other: dict[int, Tensor]) -> Tensor | None:
    """Return `value` - Σ_k row_k other_k over the entries that both rows have; None if all terms are zero."""
    for column, entry in row.items():
        if column in other:
            step = entry * other[column]
            value = -step if value is None else value - step
    return value
