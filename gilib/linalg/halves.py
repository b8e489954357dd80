"""Lower triangles by halves, whose products leave zeros out."""

from __future__ import annotations

import torch
from torch import Tensor

Halves = tuple[Tensor, Tensor, Tensor]


def halves(matrix: Tensor) -> Halves:
    """Of lower triangles `[B, I, I]`: views of what is above left, below left and below right."""
    half = (matrix.shape[-1] // 2 + 7) // 8 * 8
    return matrix[:, :half, :half], matrix[:, half:, :half], matrix[:, half:, half:]


def symmetric(inverse: Tensor, lower: Halves) -> Tensor:
    """½ (H + Hᵀ), H = Jᵀ L J, for lower triangles J `[B, I, I]` and L.

    >>> symmetric(torch.eye(9)[None], halves(2 * torch.ones(1, 9, 9).tril()))[0, 0, :2]
    tensor([2., 1.])
    """
    j11, j21, j22 = halves(inverse)
    l11, l21, l22 = lower
    m11, m21, m22 = l11 @ j11, torch.baddbmm(l21 @ j11, l22, j21), l22 @ j22
    found = torch.empty_like(inverse)
    first, below, second = halves(found)
    for out, part in ((first, torch.baddbmm(j11.mT @ m11, j21.mT, m21)), (second, j22.mT @ m22)):
        torch.add(part, part.mT, out=out)
    torch.baddbmm(j22.mT @ m21, m22.mT, j21, out=below)
    found[:, : below.shape[-1], below.shape[-1] :] = below.mT
    return found.mul_(0.5)
