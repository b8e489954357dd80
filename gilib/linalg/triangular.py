"""Lower triangular matrices: a Cholesky factor with its inverse, and blockwise products that skip zeros."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gilib.linalg.factor import ADVICE, cholesky, identities, readable
from gilib.linalg.operation import Operation, within_transform
from gilib.linalg.products import matmul

Halves = tuple[Tensor, Tensor, Tensor]
MAX_SOLVED = 56  # most rows of a triangle that is inverted by one solve; measured
MIN_ENTRIES, MIN_ROWS = 40_000, 32  # of a batch and of a matrix, for blocks to be worth their calls; measured


def cholesky_and_inverse(
    matrix: Tensor, what: str = "the matrix", advice: str = ADVICE
) -> tuple[Tensor, Tensor]:
    """Return the lower Cholesky factor T of `matrix` = T Tᵀ and its inverse; repeatedly differentiable.

    Args:
        matrix: `[..., I, I]`; failures are reported as by `cholesky`.
        what: name of the matrix, for the error.
        advice: possible causes and remedies, for the error.

    Returns:
        T and T⁻¹, `[..., I, I]`, lower triangular.

    >>> factor, inverse = cholesky_and_inverse(torch.tensor([[4.0, 0.0], [2.0, 2.0]]))
    >>> inverse
    tensor([[ 0.5000,  0.0000],
            [-0.5000,  1.0000]])
    """
    if within_transform() or forward_ad._current_level >= 0 or not readable(matrix):
        factor = cholesky(matrix, what, advice)
        return factor, torch.linalg.solve_triangular(factor, identities(factor), upper=False)
    flat = matrix.flatten(0, -3) if matrix.dim() > 2 else matrix[None]
    factor, inverse = _CholeskyAndInverse.apply(flat, what, advice)
    return factor.reshape(matrix.shape), inverse.reshape(matrix.shape)


class _CholeskyAndInverse(Operation):
    """Both factors of matrices `[B, I, I]`, with a gradient made of triangular products.

    Let J = T⁻¹, with upstream gradients F of T and G of J. The gradient is

        ½ (H + Hᵀ),    H = Jᵀ L J,    L = tril(TᵀF - G Jᵀ) with half its diagonal.

    torch's own gradient, by triangular systems, takes 1.2 to 1.8 times as long (`benchmarks/operations.py`).
    """

    @staticmethod
    def forward(matrix: Tensor, what: str, advice: str) -> tuple[Tensor, Tensor]:
        factor = cholesky(matrix, what, advice)
        with torch.autocast("cpu", enabled=False):
            if _by_blocks(factor):
                return factor, inverse_of_lower(factor)
            return factor, torch.linalg.solve_triangular(factor, identities(factor), upper=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str, str], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, of_factor: Tensor, of_inverse: Tensor) -> tuple[Tensor, None, None]:
        factor, inverse = ctx.saved_tensors
        upstream = [part.to(factor.dtype) for part in (of_factor, of_inverse)]
        # Blocks are written in place, which neither a second derivative nor a batched gradient allows.
        plainly = torch.is_grad_enabled() or not (_by_blocks(factor) and all(map(readable, upstream)))
        with torch.autocast("cpu", enabled=False):
            if plainly:
                return _plain_gradient(factor, inverse, *upstream), None, None
            return symmetric(inverse, _inner(factor, inverse, *upstream)), None, None


def _by_blocks(matrices: Tensor) -> bool:
    """Return whether matrices are so large that blocks are worth their calls."""
    return matrices.numel() >= MIN_ENTRIES and matrices.shape[-1] >= MIN_ROWS


def _plain_gradient(factor: Tensor, inverse: Tensor, of_factor: Tensor, of_inverse: Tensor) -> Tensor:
    """Compute the gradient with products of whole matrices, which can be differentiated again."""
    twice = torch.baddbmm(factor.mT @ of_factor, of_inverse, inverse.mT, alpha=-1.0)
    return inverse.mT @ (0.5 * (twice.tril() + twice.tril(-1).mT)) @ inverse


def _inner(factor: Tensor, inverse: Tensor, of_factor: Tensor, of_inverse: Tensor) -> Halves:
    """Compute the blocks of L; blocks above the diagonal are never needed."""
    t11, t21, t22 = halves(factor)
    f11, f21, f22 = halves(of_factor)
    j11, j21, j22 = halves(inverse)
    g11, g21, g22 = halves(of_inverse)
    first = _minus(torch.baddbmm(t11.mT @ f11, t21.mT, f21), g11, j11)
    below = _minus(t22.mT @ f21, g21, j11)
    second = _minus(_minus(t22.mT @ f22, g21, j21), g22, j22)
    for each in (first, second):
        each.tril_().diagonal(dim1=-2, dim2=-1).mul_(0.5)
    return first, below, second


def _minus(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return total.baddbmm_(left, right.mT, alpha=-1.0)


def halves(matrix: Tensor) -> Halves:
    """Return views of the three blocks of lower triangles `[B, I, I]`: top left, bottom left and right."""
    half = (matrix.shape[-1] // 2 + 7) // 8 * 8
    return matrix[:, :half, :half], matrix[:, half:, :half], matrix[:, half:, half:]


def symmetric(inverse: Tensor, lower: Halves) -> Tensor:
    """Return ½ (H + Hᵀ), H = Jᵀ L J, for lower triangles J `[B, I, I]` and L."""
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


def inverse_of_lower(matrix: Tensor) -> Tensor:
    """Return the inverse of lower triangles `[B, I, I]`, computed recursively by blocks.

    With 785 rows this takes a third of the time of a triangular solve for the identity.
    """
    size = matrix.shape[-1]
    if size <= MAX_SOLVED:
        return torch.linalg.solve_triangular(matrix, identities(matrix), upper=False)
    found = torch.zeros_like(matrix, memory_format=torch.contiguous_format)
    first, below, second = halves(found)
    above, corner, rest = halves(matrix)
    first.copy_(inverse_of_lower(above))
    second.copy_(inverse_of_lower(rest))
    below.copy_(-matmul(second, matmul(corner, first)))
    return found
