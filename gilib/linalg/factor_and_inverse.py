"""A Cholesky factor together with its inverse, and the gradient of both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gilib.linalg.factor import ADVICE, cholesky, identities, readable
from gilib.linalg.halves import Halves, halves, inverse_of_lower, symmetric
from gilib.linalg.operation import Operation

LARGE, WIDE = 40_000, 32  # numbers in all, and rows, from which halves are worth their calls; measured


def cholesky_and_inverse(
    matrix: Tensor, what: str = "the matrix", advice: str = ADVICE
) -> tuple[Tensor, Tensor]:
    """The lower Cholesky factor T of `matrix` = T Tᵀ, and T⁻¹; differentiable as often as wanted.

    Args:
        matrix: `[..., I, I]`; failures are reported as by `cholesky`.
        what: the matrix's name, for the error.
        advice: as for `cholesky`.

    Returns:
        T and T⁻¹, `[..., I, I]`, lower triangular.

    >>> factor, inverse = cholesky_and_inverse(torch.tensor([[4.0, 0.0], [2.0, 2.0]]))
    >>> inverse
    tensor([[ 0.5000,  0.0000],
            [-0.5000,  1.0000]])
    """
    large = matrix.numel() >= LARGE and matrix.shape[-1] >= WIDE
    if large and readable(matrix) and forward_ad._current_level < 0:
        flat = matrix.flatten(0, -3) if matrix.dim() > 2 else matrix[None]
        factor, inverse = _CholeskyAndInverse.apply(flat, what, advice)
        return factor.reshape(matrix.shape), inverse.reshape(matrix.shape)
    return _both(matrix, what, advice)


def _both(matrix: Tensor, what: str, advice: str) -> tuple[Tensor, Tensor]:
    """The same, with the gradient that torch finds."""
    factor = cholesky(matrix, what, advice)
    return factor, torch.linalg.solve_triangular(factor, identities(factor), upper=False)


class _CholeskyAndInverse(Operation):
    """Of matrices `[B, I, I]`.

    With J = T⁻¹ and upstream F of T and G of J the gradient is

        ½ (H + Hᵀ),    H = Jᵀ L J,    L = tril(TᵀF - G Jᵀ) with half its diagonal:

    products of triangles, where torch solves triangular systems; by halves those with zeros are left out.
    Back 1.6 to 1.9 times as fast as what torch finds, forward and back 1.2 to 1.3 times
    (`benchmarks/operations.py`).
    """

    @staticmethod
    def forward(matrix: Tensor, what: str, advice: str) -> tuple[Tensor, Tensor]:
        factor = cholesky(matrix, what, advice)
        with torch.autocast("cpu", enabled=False):
            return factor, inverse_of_lower(factor)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str, str], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, of_factor: Tensor, of_inverse: Tensor) -> tuple[Tensor, None, None]:
        factor, inverse = ctx.saved_tensors
        upstream = [part.to(factor.dtype) for part in (of_factor, of_inverse)]
        plainly = torch.is_grad_enabled() or not all(map(readable, upstream))  # a gradient of this, or many
        with torch.autocast("cpu", enabled=False):
            if plainly:
                return _plain_gradient(factor, inverse, *upstream), None, None
            return symmetric(inverse, _inner(factor, inverse, *upstream)), None, None


def _plain_gradient(factor: Tensor, inverse: Tensor, of_factor: Tensor, of_inverse: Tensor) -> Tensor:
    """By whole products."""
    lower = factor.mT @ of_factor - of_inverse @ inverse.mT
    lower = lower.tril() - 0.5 * torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1))
    product = inverse.mT @ lower @ inverse
    return 0.5 * (product + product.mT)


def _inner(factor: Tensor, inverse: Tensor, of_factor: Tensor, of_inverse: Tensor) -> Halves:
    """L, by halves."""
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
    """`total` - `left` @ `right`ᵀ in the place of `total`."""
    return total.baddbmm_(left, right.mT, alpha=-1.0)
