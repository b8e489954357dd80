"""Multiply matrices, large ones with the fastest library for this processor (see `gilib.linalg.onednn`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gilib.linalg.onednn import LEAST, by_onednn, onednn
from gilib.linalg.operation import Operation
from gilib.linalg.samples import leading, samples


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """Return `left` @ `right` for tensors with two or more axes; differentiable any number of times."""
    if torch.compiler.is_compiling() or left.numel() * right.shape[-1] < LEAST:
        return left @ right
    lead = leading(left, right)
    if left.dim() > 2 and right.shape[:-2].numel() == 1 and left.is_contiguous():
        rows = _product(left.flatten(0, -2), right.reshape(right.shape[-2:]))
        return rows.reshape(*lead, left.shape[-2], right.shape[-1])
    if not by_onednn(left, right):
        return left @ right
    return _product(left.expand(*lead, *left.shape[-2:]), right.expand(*lead, *right.shape[-2:]))


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return `left` @ `right`, computed as few large products; leading axes broadcast.

    Samples that one matrix on the left multiplies are laid side by side as columns of a single product.
    Samples that multiply one matrix on the right are multiplied one by one: to merge them torch would copy
    the batch, which costs more than it saves.
    """
    lead = leading(left, right)
    if left.shape[:-2].numel() == 1 < lead.numel():
        side_by_side = right.flatten(0, -3).transpose(0, 1).flatten(1)
        columns = _product(left.reshape(left.shape[-2:]), side_by_side)
        return columns.unflatten(-1, (-1, right.shape[-1])).transpose(0, 1).unflatten(0, lead)
    return _product(left.expand(*lead, *left.shape[-2:]), right.expand(*lead, *right.shape[-2:]))


def plus_matmul(total: Tensor, left: Tensor, right: Tensor, weight: float = 1.0) -> Tensor:
    """Return `total` + `weight` · `left` @ `right`; not differentiable.

    >>> plus_matmul(torch.ones(2, 1), torch.eye(2), torch.ones(2, 1), weight=-1.0).flatten()
    tensor([0., 0.])
    """
    if total.dim() > 3 or by_onednn(left, right):
        return torch.add(total, matmul(left, right), alpha=weight)
    add = torch.addmm if total.dim() == 2 else torch.baddbmm
    return add(total, left, right, alpha=weight)


def add_matmul(
    total: Tensor, left: Tensor, right: Tensor, weight: float = 1.0, *, beta: float = 1.0
) -> Tensor:
    """Overwrite `total` with `beta` · `total` + `weight` · `left` @ `right`; not differentiable.

    There may be two or three axes. If `beta` is 0, it does not matter what `total` holds.
    """
    if not by_onednn(left, right):
        add = total.addmm_ if total.dim() == 2 else total.baddbmm_
        return add(left, right, beta=beta, alpha=weight)
    found = _sample_by_sample(left, right)
    if weight != 1.0:
        found.mul_(weight)
    if beta == 0.0:
        return total.copy_(found)
    return total.add_(found) if beta == 1.0 else total.mul_(beta).add_(found)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return `left` @ `right` for tensors with equal leading axes."""
    if not by_onednn(left, right):
        return left @ right
    if not (torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)):
        return _sample_by_sample(left, right)
    return _Product.apply(left, right)


def _sample_by_sample(left: Tensor, right: Tensor) -> Tensor:
    if left.shape[:-2].numel() == 1:
        found = onednn(left.flatten(0, -2), right.flatten(0, -2))
        return found.reshape(*left.shape[:-1], right.shape[-1])
    found = left.new_empty(*left.shape[:-1], right.shape[-1])
    for a, b, out in samples(left.shape[:-2], left, right, found):
        out.copy_(onednn(a, b))
    return found


class _Product(Operation):
    """A product by oneDNN, whose operation has no gradient of its own."""

    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        return _sample_by_sample(left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        (left, right), wanted = inputs, ctx.needs_input_grad
        ctx.save_for_backward(left if wanted[1] else None, right if wanted[0] else None)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        return (
            _product(gradient, right.mT) if ctx.needs_input_grad[0] else None,
            _product(left.mT, gradient) if ctx.needs_input_grad[1] else None,
        )
