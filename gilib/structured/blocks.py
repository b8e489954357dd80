"""Blocks of a covariance S = C Cᵀ from the rows of a sparse factor, with a hand-written gradient.

    S_rc = Σ_k C_rk C_ckᵀ,  k over the columns that both rows have;    ∂C_rk += G C_ck,  ∂C_ck += Gᵀ C_rk.

Plain autograd would write the gradient of every slice of a row as a whole row of zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gilib.linalg.operation import Operation, first_order, within_transform
from gilib.linalg.products import add_matmul
from gilib.structured.pattern import Pattern


def covariance_blocks(rows: list[Tensor], pattern: Pattern) -> dict[tuple[int, int], Tensor]:
    """The blocks of the lower triangle that are not zero.

    Args:
        rows: of the factor, one for every process, its blocks side by side, `[R, M_r, K_r]`.
        pattern: which blocks there are.

    Returns:
        by row and column, `[R, M_r, M_c]`.
    """
    lead = rows[0].shape[:-2]
    flat = [row.reshape(-1, *row.shape[-2:]) for row in rows]
    compute = _blocks_plainly if within_transform() else _Blocks.apply
    blocks = compute(pattern, *flat)
    return {
        place: block.reshape(*lead, *block.shape[-2:])
        for place, block in zip(pattern.covariance, blocks, strict=True)
    }


def _blocks_plainly(pattern: Pattern, *rows: Tensor) -> list[Tensor]:
    """The same for transforms of `torch.func`, by plain products."""
    found = []
    for r, c in pattern.covariance:
        block = rows[r].new_zeros(len(rows[r]), pattern.points[r], pattern.points[c])
        for at, other, length in pattern.runs(r, c):
            block = block + rows[r].narrow(2, at, length) @ rows[c].narrow(2, other, length).mT
        found.append(block)
    return found


class _Blocks(Operation):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, *rows: Tensor) -> tuple[Tensor, ...]:
        ctx.pattern = pattern
        ctx.save_for_backward(*rows)
        found = []
        for r, c in pattern.covariance:
            block = rows[r].new_zeros(len(rows[r]), pattern.points[r], pattern.points[c])
            for at, other, length in pattern.runs(r, c):
                left, right = rows[r].narrow(2, at, length), rows[c].narrow(2, other, length)
                add_matmul(block, left, right.mT)
            found.append(block)
        return tuple(found)

    @staticmethod
    @first_order
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        rows, pattern = ctx.saved_tensors, ctx.pattern
        gradients = [torch.zeros_like(row) for row in rows]
        for (r, c), gradient in zip(pattern.covariance, upstream, strict=True):
            if r == c:
                add_matmul(gradients[r], gradient + gradient.mT, rows[r])
                continue
            for at, other, length in pattern.runs(r, c):
                left, right = rows[r].narrow(2, at, length), rows[c].narrow(2, other, length)
                add_matmul(gradients[r].narrow(2, at, length), gradient, right)
                add_matmul(gradients[c].narrow(2, other, length), gradient.mT, left)
        return None, *gradients
