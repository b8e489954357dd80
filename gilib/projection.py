"""Compute the terms of mean and variance of Gaussian processes at many points, given inducing outputs.

With kernel values k = k(x, Z), R⁻¹, and w_o ~ N(m_o, S_o), let a = R⁻¹ k. The terms are aᵀ m_o, |a|² and
aᵀ S_o a. If the inducing outputs of several layers are jointly Gaussian, the covariance S' of a layer with a
later one gives fields S' a at every point, and the later layer's own a' gives products a'ᵀ S' a. For a
squared exponential kernel the exponents may be passed instead of its values, which are then computed here.
Large samples are processed one by one, so that their intermediate results stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gilib.linalg import readable
from gilib.linalg.exponential import Exponents, exponential
from gilib.linalg.operation import Operation, first_order, within_transform
from gilib.linalg.products import add_matmul, matmul, product
from gilib.linalg.samples import leading, samples

MIN_PRODUCTS = 2**15  # of one sample, for a loop over samples; measured: 30 000 products gain nothing


class Projected(NamedTuple):
    """The terms of mean and variance at N points."""

    mean: Tensor  # aᵀ m_o, `[..., N, O]`
    square: Tensor  # |a|², `[..., N, 1]`
    forms: Tensor | None = None  # quadratic forms aᵀ S_q a, `[..., N, Q]`; None without S
    crosses: Sequence[Tensor] = ()  # products of a with the fields of earlier layers, `[..., N, J]` each
    onward: Sequence[Tensor] = ()  # fields for later layers, `[..., N, K]` each

    def to(self, dtype: torch.dtype) -> Projected:
        """Return all terms in another dtype."""
        forms = None if self.forms is None else self.forms.to(dtype)
        crosses, onward = ([part.to(dtype) for part in parts] for parts in (self.crosses, self.onward))
        return Projected(self.mean.to(dtype), self.square.to(dtype), forms, crosses, onward)


class Columns(NamedTuple):
    """The matrices and vectors that multiply a, side by side."""

    values: Tensor  # S_1, ..., S_Q, then covariances with later layers, then m_1, ..., m_O: `[..., M, C]`
    forms: int  # Q, either O or 1. The matrices S_q are symmetric.
    outputs: int  # O
    onward: tuple[int, ...] = ()  # K for every later layer

    @property
    def parts(self) -> list[slice]:
        """Slices of the matrices S, of the covariances with each later layer, and of the means."""
        widths = self.forms * self.values.shape[-2], *self.onward, self.outputs
        return [slice(end - width, end) for width, end in zip(widths, accumulate(widths), strict=True)]


def project(
    kernel: Tensor | Exponents, inverse: Tensor, mean: Tensor, covariance: Tensor | None
) -> Projected:
    """Compute the terms for a distribution of w with independent columns; leading axes broadcast.

    The kernel is k(x, Z), `[..., N, M]`, or its exponents; the inverse R⁻¹, `[..., M, M]`; the mean m,
    `[..., M, O]`; the covariance S, symmetric, `[..., O, M, M]`, `[..., 1, M, M]` for all outputs, or None.
    """
    columns, outputs = mean, mean.shape[-1]
    if covariance is not None:
        columns = side_by_side([covariance.movedim(-3, -2).flatten(-2), mean])
    forms = 0 if covariance is None else covariance.shape[-3]
    return project_columns(kernel, inverse, Columns(columns, forms, outputs))


def project_columns(
    kernel: Tensor | Exponents, inverse: Tensor, columns: Columns, fields: Sequence[Tensor] = ()
) -> Projected:
    """Compute the terms for one layer of a joint distribution; kernel and inverse are as in `project`.

    `fields` are those of every earlier layer, J times M numbers at every point, `[..., N, J M]`.
    """
    first, right = kernel[:2] if isinstance(kernel, Exponents) else (kernel, None)
    parts = [first, inverse] if right is None else [first, right, inverse]
    shared = leading(*parts, columns.values, *fields) != leading(*parts)
    points, size = first.shape[-2 if right is None else -1], inverse.shape[-1]
    small = points * (size + columns.values.shape[-1]) < MIN_PRODUCTS
    if shared or small or not readable(first) or within_transform():
        values = kernel.values() if isinstance(kernel, Exponents) else kernel
        return projected_at_once(values, inverse, columns, fields)
    mean, square, forms, *rest = _Project.apply(first, right, inverse, columns, columns.values, *fields)
    return Projected(mean, square, forms, rest[: len(fields)], rest[len(fields) :])


def projected_at_once(
    kernel: Tensor, inverse: Tensor, columns: Columns, fields: Sequence[Tensor]
) -> Projected:
    """Compute all samples at once by plain products, for small samples and for samples that share a."""
    white = product(kernel, inverse.mT)
    products = product(white, columns.values)
    own, *onward, mean = (products[..., part] for part in columns.parts)

    def dots(vectors: Tensor) -> Tensor:
        return (vectors.unflatten(-1, (-1, white.shape[-1])) * white[..., None, :]).sum(-1)

    forms = dots(own) if columns.forms else None
    square = white.square().sum(-1, keepdim=True)
    return Projected(mean, square, forms, [dots(field) for field in fields], onward)


def side_by_side(columns: Sequence[Tensor]) -> Tensor:
    """Concatenate matrices `[..., M, *]`, whose leading axes broadcast, along the last axis."""
    lead = leading(*columns)
    return torch.cat([part.expand(*lead, *part.shape[-2:]) for part in columns], -1)


class _Project(Operation):
    """`project_columns`, sample by sample, with its gradient in closed form.

    With upstream gradients f of aᵀm, n of |a|², q of aᵀSa, j of products with fields v, and k of fields S'a,
    the gradient of a is

        Σ_o f_o m_o + 2 n a + 2 Σ_q q_q S_q a + Σ_j j_j v_j + S'ᵀk.

    Points lie along the last axis of k and a, `[M, N]`, so that no product copies them. With `right`, the
    kernel argument holds the left coordinates of the exponents. The gradient of k then passes to both in
    float64, because the gradient of a lengthscale is a small difference of large numbers.
    """

    @staticmethod
    def forward(
        ctx: Any,
        kernel: Tensor,
        right: Tensor | None,
        inverse: Tensor,
        columns: Columns,
        values: Tensor,
        *fields: Tensor,
    ) -> tuple[Tensor | None, ...]:
        lead = leading(kernel, inverse) if right is None else leading(kernel, right, inverse)
        points, size = kernel.shape[-2 if right is None else -1], inverse.shape[-1]
        own, *later, means = columns.parts
        widths = [columns.outputs, 1, columns.forms]
        widths += [field.shape[-1] // size for field in fields] + list(columns.onward)
        made = [inverse.new_empty(*lead, points, width) if width else None for width in widths]
        made[0] = inverse.new_empty(*lead, columns.outputs, points).mT
        exponents = None if right is None else right.new_empty(size, points)
        given, count, kept = (kernel, right, inverse, values, *fields), len(fields), []
        for k, b, r, c, *rest in samples(lead, *given, *made):
            vectors, (m, n, q), found = rest[:count], rest[count : count + 3], rest[count + 3 :]
            if exponents is None:
                k = k.mT
            else:
                k = exponential(b, k, exponents, inverse.new_empty(size, points))
                kept.append(k)
            a = matmul(r, k)
            add_matmul(m, a.mT, c[:, means], beta=0.0)
            torch.sum(a.square(), 0, out=n[:, 0])
            kept.append(a)
            if q is None and not found:
                continue
            kept.append(a.mT.contiguous())
            rows = kept[-1]
            if q is not None:
                kept.append(matmul(rows, c[:, own]))
                _dots(kept[-1], rows, q)
            for v, j in zip(vectors, found, strict=False):
                _dots(v, rows, j)
            for part, o in zip(later, found[count:], strict=True):
                add_matmul(o, rows, c[:, part], beta=0.0)
        ctx.save_for_backward(*given, *kept)
        ctx.parts, ctx.forms, ctx.lead, ctx.given = columns.parts, columns.forms, lead, len(given)
        return tuple(made)

    @staticmethod
    @first_order
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        given, kept = ctx.saved_tensors[: ctx.given], iter(ctx.saved_tensors[ctx.given :])
        own, *later, means = ctx.parts
        gradients: list[Any] = [None if value is None else torch.zeros_like(value) for value in given]
        gradients[3] = torch.zeros_like(given[3].mT, memory_format=torch.contiguous_format).mT
        alone = given[1] is None and given[0].shape[:-2] == ctx.lead  # no two samples share a k
        count, size = len(given) - 4, given[2].shape[-1]
        points = given[0].shape[-2 if given[1] is None else -1]
        d_a, weighted = given[2].new_empty(size, points), given[2].new_empty(points, ctx.forms, size)
        slopes = None if given[1] is None else given[1].new_empty(size, points)
        more = bool(ctx.forms or count or later)
        for k, b, r, c, *rest in samples(ctx.lead, *given, *gradients, *upstream):
            values = k.mT if b is None else next(kept)
            a = next(kept)
            rows: Any = next(kept) if more else None
            vectors, (d_k, d_b, d_r, d_c), rest = rest[:count], rest[count : count + 4], rest[count + 4 :]
            d_vectors, (f, n, q), rest = rest[:count], rest[count : count + 3], rest[count + 3 :]
            # d_a collects half of what is symmetric in a (n, q), which beta = 2 below doubles
            torch.mul(a, n.mT, out=d_a)
            if q is not None:
                d_a.add_(_weighted(next(kept), q).mT)
                torch.mul(q[..., None], rows[:, None], out=weighted)
                add_matmul(d_c[:, own], a, weighted.flatten(1))
            add_matmul(d_a, c[:, means], f.mT, beta=2.0)
            add_matmul(d_c[:, means], a, f)
            for v, d_v, j in zip(vectors, d_vectors, rest, strict=False):
                d_a.add_(_weighted(v, j).mT)
                d_v.unflatten(1, (-1, size)).addcmul_(j[..., None], rows[:, None])
            for part, o in zip(later, rest[count:], strict=True):
                add_matmul(d_a, c[:, part], o.mT)
                add_matmul(d_c[:, part], a, o)
            add_matmul(d_r, d_a, values.mT)
            if slopes is None:  # a gradient of its own is written, a shared one is accumulated
                add_matmul(d_k.mT, r.mT, d_a, beta=0.0 if alone else 1.0)
            else:  # through the exponential: ∂ of exponents = k · ∂k
                torch.mul(values, matmul(r.mT, d_a), out=slopes)
                d_k.addmm_(b, slopes)
                d_b.addmm_(k, slopes.mT)
        return *gradients[:3], None, *gradients[3:]


def _dots(vectors: Tensor, white: Tensor, out: Tensor) -> None:
    """Write inner products of J vectors side by side, `[N, J M]`, with a, `[N, M]`, to `out`, `[N, J]`."""
    torch.linalg.vecdot(vectors.unflatten(1, (-1, white.shape[1])), white[:, None], out=out)


def _weighted(vectors: Tensor, weights: Tensor) -> Tensor:
    """Return Σ_j j_j v_j, `[N, M]`, for vectors `[N, J M]` and weights `[N, J]`."""
    if weights.shape[1] == 1:
        return vectors * weights
    return torch.bmm(weights[:, None], vectors.unflatten(1, (weights.shape[1], -1)))[:, 0]
