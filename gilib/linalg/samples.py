"""Work on a batch of samples one by one, where each fits into a processor's cache and all of them do not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gilib.linalg.factor import readable


def one_by_one(like: Tensor, lead: Sequence[int], large: bool) -> bool:
    """Whether samples are worked on one by one: several of them, on a processor, if each is `large`.

    Small ones take less time than the calls that a loop makes for each. An accelerator takes all at once, and
    so do compilers and transforms of functions, which follow plain products.

    >>> import torch
    >>> one_by_one(torch.empty(0), (10,), True), one_by_one(torch.empty(0), (1, 1), True)
    (True, False)
    """
    return large and math.prod(lead) > 1 and readable(like)


def leading(first: Tensor, *others: Tensor) -> torch.Size:
    """The axes before the last two, broadcast: at a quarter of the time that torch takes to say so.

    >>> leading(torch.ones(5, 1, 3, 3), torch.ones(2, 3, 1))
    torch.Size([5, 2])
    """
    own = first.shape[:-2]
    if all(other.shape[:-2] == own for other in others):
        return own
    shapes = own, *(other.shape[:-2] for other in others)
    if torch.compiler.is_compiling():
        return torch.broadcast_shapes(*shapes)
    return torch.Size(np.broadcast_shapes(*shapes))


def samples(lead: Sequence[int], *tensors: Tensor | None, axes: int = 2) -> Iterator[tuple[Any, ...]]:
    """What of several tensors belongs to a sample, sample by sample.

    These are views: what is added to one of a tensor that samples share is added to that of all.

    Args:
        lead: leading axes, to which those of every tensor broadcast.
        tensors: any of them may be None, and then is.
        axes: how many axes of each tensor are a sample's own.

    >>> import torch
    >>> total = torch.zeros(1)
    >>> for value, shared in samples((3,), torch.ones(3, 1), total, axes=1):
    ...     _ = shared.add_(value)
    >>> total
    tensor([3.])
    """
    count = math.prod(lead)
    views = ([None] * count if value is None else _views(value, lead, axes) for value in tensors)
    yield from zip(*views, strict=True)


def _views(value: Tensor, lead: Sequence[int], axes: int) -> list[Tensor]:
    """The views of all samples, in order."""
    views = [value.expand(*lead, *value.shape[value.dim() - axes :])]
    for _ in lead:
        views = [view for each in views for view in each.unbind()]
    return views
