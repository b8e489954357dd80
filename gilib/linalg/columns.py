"""Multiply matrices that a batch shares along some axes by turning those axes into columns of one product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Columns:
    """The layout of a batch of right-hand sides as columns for the B matrices that multiply them.

    Args:
        own: leading axes of the matrices `[*own, I, I]`, B matrices in all.
        lead: leading axes of the right-hand sides; `own` must broadcast to them.

    >>> shared = Columns((2,), (5, 2))  # five samples for each of two matrices
    >>> columns = shared.merge(torch.ones(5, 2, 4, 1))
    >>> columns.shape, shared.split(columns, 1).shape, shared.total(torch.ones(5, 2)).flatten()
    (torch.Size([2, 4, 5]), torch.Size([5, 2, 4, 1]), tensor([5., 5.]))
    """

    def __init__(self, own: Sequence[int], lead: Sequence[int]):
        self.lead, self.together = torch.Size(lead), tuple(own) != tuple(lead)
        if not self.together:
            return
        padded = (*(1,) * (len(lead) - len(own)), *own)
        has = [mine == size for mine, size in zip(padded, lead, strict=True)]
        kept = [axis for axis, there in enumerate(has) if there]
        shared = [axis for axis, there in enumerate(has) if not there]
        self.kept = torch.Size(lead[axis] for axis in kept)
        self.shared = torch.Size(lead[axis] for axis in shared)
        self.axes, self.order = [*kept, *shared], [*kept, len(lead), *shared, len(lead) + 1]

    def merge(self, values: Tensor) -> Tensor:
        """Arrange values that broadcast to `[*lead, I, C]` as `[B, I, columns]`."""
        if values.shape[:-2] != self.lead:
            values = values.expand(*self.lead, *values.shape[-2:])
        if not self.together:
            return values.reshape(-1, *values.shape[-2:])
        values = values.permute(self.order)
        return values.reshape(self.kept.numel(), values.shape[len(self.kept)], -1)

    def total(self, values: Tensor) -> Tensor:
        """Sum values that broadcast to `[*lead]` over the axes that become columns; `[B, 1]`."""
        values = values.expand(self.lead)
        if not self.together:
            return values.reshape(-1, 1)
        return values.permute(self.axes).reshape(self.kept.numel(), -1).sum(-1, keepdim=True)

    def split(self, columns: Tensor, count: int) -> Tensor:
        """Undo `merge`: arrange `[B, I, columns]` as `[*lead, I, C]` with C = `count`."""
        if not self.together:
            return columns.reshape(*self.lead, *columns.shape[-2:])
        values = columns.reshape(*self.kept, columns.shape[-2], *self.shared, count)
        return values.permute([self.order.index(axis) for axis in range(len(self.order))])


def solve_shared(factor: Tensor, values: Tensor) -> Tensor:
    """Return `factor`⁻¹ `values`, `[*lead, I, C]`, for upper triangles that values share along axes."""
    lead = values.shape[:-2]
    if lead.numel() == factor.shape[:-2].numel():
        return torch.linalg.solve_triangular(factor, values, upper=True)
    columns = Columns(factor.shape[:-2], lead)
    flat = factor.reshape(-1, *factor.shape[-2:])
    solved = torch.linalg.solve_triangular(flat, columns.merge(values), upper=True)
    return columns.split(solved, values.shape[-1])
