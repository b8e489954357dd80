"""Quadratic forms of many vectors with a few matrices, and products in which few matrices meet many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as product_of
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gilib.linalg.blocks import at_once, pieces


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left` @ `right`, `[..., I, J]` and `[..., J, K]`, each sample by itself.

    Torch folds a matrix without a sample axis and a batch with one into a large product, for which it copies
    the batch; many columns make that slower than one product for every sample.

    >>> product(torch.eye(2), torch.ones(3, 2, 4)).shape
    torch.Size([3, 2, 4])
    """
    lead = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    return left.expand(*lead, *left.shape[-2:]) @ right.expand(*lead, *right.shape[-2:])


def samples(lead: Sequence[int], axes: Sequence[int], *tensors: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """What of several tensors belongs to a sample, sample by sample.

    These are views: what is added to one of a tensor that samples share is added to that of all.

    Args:
        lead: leading axes, to which those of every tensor broadcast.
        axes: how many axes of each tensor are a sample's own.
        tensors: any of them may be None, and then is.
    """
    spread = [
        value if value is None else value.expand(*lead, *value.shape[value.dim() - own :])
        for value, own in zip(tensors, axes, strict=True)
    ]
    for index in product_of(*map(range, lead)):
        yield tuple(None if value is None else value[index] for value in spread)


def quadratic_forms(vectors: Tensor, matrices: Tensor) -> Tensor:
    """a_nᵀ S_o a_n of every vector and matrix.

    With upstream g the gradients are 2 Σ_o g_on S_o a_n and Σ_n g_on a_n a_nᵀ: two more products of the size
    of S_o a_n, which are formed again, a few matrices at a time, since memory is slower.

    Args:
        vectors: a, `[..., M, N]`, one in each column.
        matrices: S, `[..., O, M, M]`, symmetric, and so is the gradient; leading axes broadcast.

    Returns:
        `[..., O, N]`.

    >>> quadratic_forms(torch.tensor([[1.0], [2.0]]), torch.eye(2).expand(1, 2, 2))
    tensor([[5.]])
    """
    forms: Tensor = _QuadraticForms.apply(vectors, matrices)
    return forms


class _QuadraticForms(torch.autograd.Function):
    @staticmethod
    def forward(vectors: Tensor, matrices: Tensor) -> Tensor:
        lead = torch.broadcast_shapes(vectors.shape[:-2], matrices.shape[:-3])
        forms = vectors.new_empty(*lead, matrices.shape[-3], vectors.shape[-1])
        for a, s, out in samples(lead, (2, 3, 2), vectors, matrices, forms):
            write_forms(a, s, out)
        return forms

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        inputs = ctx.saved_tensors
        gradients = [torch.zeros_like(value) for value in inputs]
        for part in samples(g.shape[:-2], (2, 3, 2, 2, 3), *inputs, g, *gradients):
            add_form_gradients(*part)
        return gradients[0], gradients[1]


def write_forms(vectors: Tensor, matrices: Tensor, out: Tensor) -> None:
    """Write a_nᵀ S_o a_n of one sample's `[M, N]` and `[O, M, M]` to `[O, N]`."""
    for part in _few(vectors, matrices):
        products = (matrices[part].flatten(0, 1) @ vectors).unflatten(0, matrices[part].shape[:2])
        torch.sum(products.mul_(vectors), 1, out=out[part])


def add_form_gradients(
    vectors: Tensor, matrices: Tensor, upstream: Tensor, to_vectors: Tensor, to_matrices: Tensor
) -> None:
    """Add the gradients of one sample's forms, `upstream` `[O, N]`, to those of its vectors and matrices."""
    for part in _few(vectors, matrices):
        weighted = (upstream[part][:, None] * vectors).flatten(0, 1)  # g_on a_n, [O M, N]
        to_vectors.addmm_(matrices[part].flatten(0, 1).mT, weighted, alpha=2.0)
        to_matrices[part].flatten(0, 1).addmm_(weighted, vectors.mT)


def _few(vectors: Tensor, matrices: Tensor) -> Iterator[slice]:
    """A few matrices at a time: their products with the vectors stay in cache."""
    return pieces(len(matrices), at_once(vectors, vectors.numel()))
