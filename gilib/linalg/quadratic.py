"""Quadratic forms of many vectors with a few matrices."""

from __future__ import annotations

from torch import Tensor


def quadratic_forms(vectors: Tensor, matrices: Tensor) -> Tensor:
    """a_nᵀ S_o a_n of every vector and matrix.

    Args:
        vectors: a, `[..., M, N]`, one in each column.
        matrices: S, `[..., O, M, M]`, symmetric; leading axes broadcast.

    Returns:
        `[..., O, N]`.

    >>> import torch
    >>> quadratic_forms(torch.tensor([[1.0], [2.0]]), torch.eye(2).expand(1, 2, 2))
    tensor([[5.]])
    """
    outputs, size = matrices.shape[-3], matrices.shape[-1]
    products = (matrices.flatten(-3, -2) @ vectors).unflatten(-2, (outputs, size))
    return (products * vectors[..., None, :, :]).sum(-2)
