"""Second moments of the features and residuals of a minibatch."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from gilib.linalg.blocks import pieces
from gilib.linalg.onednn import by_onednn
from gilib.linalg.products import matmul, matmul_into

__all__ = ["STRIP", "Residuals", "cross_moments", "gram_of", "moments", "residuals", "unexplained"]

STRIP = 112  # rows of a triangle at a time: at I = 785, 4/7 of the arithmetic of the square
AT_ONCE = 4096  # points of which `gram_of` makes a copy


class Residuals(NamedTuple):
    """Second moments of features and residuals.

    Attributes:
        gram: c XᵀX, `[R, I, I]`; its upper triangle is not filled.
        cross: c XᵀD, `[R, I, O]`.
        scatter: c DᵀD, `[R, O, O]`.
    """

    gram: Tensor
    cross: Tensor
    scatter: Tensor


def residuals(
    features: Tensor, targets: Tensor, mean: Tensor, weight: float, scale: float = 1.0, bias: bool = False
) -> Residuals:
    """The moments of a minibatch.

    Args:
        features: X / scale, `[R, B, I]`, or without its last column, which is 1, `[R, B, I - 1]`.
        targets: Y, `[R, B, O]`.
        mean: M, `[R, I, O]`, at which the residuals are taken.
        weight: c.
        scale: of the features, which enters where matrices are small.
        bias: whether that column is left out.
    """
    return moments(features, unexplained(features, targets, mean, scale, bias), weight, scale, bias)


def unexplained(
    features: Tensor, targets: Tensor, mean: Tensor, scale: float = 1.0, bias: bool = False
) -> Tensor:
    """D = Y - X M, `[R, B, O]`, of the same arguments."""
    weights, rest = scale * mean, targets
    if bias:
        weights, rest = weights[..., :-1, :], targets - weights[..., -1:, :]
    return rest - matmul(features, weights)


def moments(
    features: Tensor,
    left: Tensor,
    weight: float,
    scale: float = 1.0,
    bias: bool = False,
    out: Tensor | None = None,
) -> Residuals:
    """The moments of a minibatch whose residuals D are known.

    Args:
        features: as above.
        left: D, `[R, B, O]`.
        weight: c.
        scale: of the features.
        bias: as above.
        out: where to write the Gram matrix of many features, `[R, I, I]`, with zeros above its diagonal;
            None, and for few features and outputs: new memory.
    """
    if features.shape[-1] + bias + left.shape[-1] <= STRIP:
        return _at_once(features, left, weight, scale, bias)
    features, bias = _widened(features, bias)
    columns = _columns(features)
    gram = _gram(columns, features.shape[:-2], weight * scale**2, bias, out)
    cross = _cross(columns, left, weight * scale, bias)
    return Residuals(gram, cross, matmul(left.mT, left).mul_(weight))


def _at_once(features: Tensor, left: Tensor, weight: float, scale: float, bias: bool) -> Residuals:
    """The moments of few features and few outputs, from one product: calls take longer than arithmetic."""
    ones = [features.new_ones(*features.shape[:-1], 1)] if bias else []
    rows, size = torch.cat([features, *ones, left], -1), features.shape[-1] + bias
    units = _units(size, left.shape[-1], weight, scale, left.dtype, left.device)
    above, below = (matmul(rows.mT, rows) * units).split_with_sizes([size, left.shape[-1]], -2)
    gram, cross = above.split_with_sizes([size, left.shape[-1]], -1)
    return Residuals(gram, cross, below[..., size:])


@functools.lru_cache(maxsize=64)
@torch.inference_mode(False)
def _units(
    inputs: int, outputs: int, weight: float, scale: float, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """What multiplies products of features and residuals, `[I + O, I + O]`."""
    each = torch.full((inputs + outputs,), scale, dtype=dtype, device=device)
    each[inputs:] = 1.0
    return weight * torch.outer(each, each)


def cross_moments(
    features: Tensor, left: Tensor, weight: float, scale: float = 1.0, bias: bool = False
) -> Tensor:
    """c XᵀD alone, `[R, I, O]`, of the same arguments; many features are read as they lie, not transposed."""
    features, bias = _widened(features, bias)
    cross = matmul(left.mT, features).mT * (weight * scale)
    return torch.cat([cross, left.sum(-2, keepdim=True) * (weight * scale)], -2) if bias else cross


def gram_of(features: Tensor, scale: float = 1.0, bias: bool = False) -> Tensor:
    """XᵀX of many points, `[R, I, I]`, a few thousand at a time; its upper triangle is not filled."""
    lead, total = features.shape[:-2], None
    for part in features.split(AT_ONCE, -2):
        part, ones = _widened(part, bias)
        gram = _gram(_columns(part), lead, scale**2, ones, None)
        total = gram if total is None else total.add_(gram)
    assert total is not None
    return total


def _widened(features: Tensor, bias: bool) -> tuple[Tensor, bool]:
    """Few features get their column of ones; whether it is still left out."""
    if not bias or features.shape[-1] >= STRIP:
        return features, bias
    ones = features.new_ones(()).expand(*features.shape[:-1], 1)
    return torch.cat([features, ones], -1), False


def _columns(features: Tensor) -> Tensor:
    """Xᵀ, `[R, I, B]`, which products read in parts: where they are by oneDNN, dense in memory."""
    columns = (features.flatten(0, -3) if features.dim() > 2 else features[None]).mT
    return columns.contiguous() if by_onednn(columns, features) else columns


def _gram(columns: Tensor, lead: torch.Size, weight: float, bias: bool, out: Tensor | None) -> Tensor:
    """XᵀX times a factor, `[*lead, I, I]`."""
    size = columns.shape[-2] + bias
    gram = columns.new_zeros(*lead, size, size) if out is None else out
    _fill_lower_gram(gram.view(-1, size, size), columns, weight, bias)
    return gram


def _cross(columns: Tensor, left: Tensor, weight: float, bias: bool) -> Tensor:
    """XᵀD times a factor; the last row, of a column of ones left out, is the sum of D."""
    size = columns.shape[-2] + bias
    cross = left.new_empty(*left.shape[:-2], size, left.shape[-1])
    known = cross.view(-1, *cross.shape[-2:])[:, : columns.shape[-2]]
    matmul_into(known, columns, left.reshape(-1, *left.shape[-2:]), weight)
    if bias:
        torch.sum(left, -2, out=cross[..., -1, :]).mul_(weight)
    return cross


def _fill_lower_gram(gram: Tensor, columns: Tensor, weight: float, bias: bool) -> None:
    """The lower triangle of XᵀX, some rows at a time; above it, the other half of a block that is small."""
    for strip in pieces(columns.shape[-2], STRIP):
        left, right = columns[:, strip], columns[:, : strip.stop].mT
        matmul_into(gram[:, strip, : strip.stop], left, right, weight)
    if bias:
        gram[:, -1, :-1] = weight * columns.sum(-1)
        gram[:, -1, -1] = weight * columns.shape[-1]
