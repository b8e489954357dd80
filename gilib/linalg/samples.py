"""Work on a batch of samples one by one, where each fits into a processor's cache and all of them do not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product as indices
from typing import Any

import torch
from torch import Tensor


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left` @ `right`, `[..., I, J]` and `[..., J, K]`, each sample by itself.

    Torch folds a batch and a matrix without its axes into one large product, for which it copies the batch;
    with many rows that takes longer than it saves.

    >>> product(torch.eye(2), torch.ones(3, 2, 4)).shape
    torch.Size([3, 2, 4])
    """
    lead = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    return left.expand(*lead, *left.shape[-2:]) @ right.expand(*lead, *right.shape[-2:])


def one_by_one(like: Tensor, lead: Sequence[int], large: bool) -> bool:
    """Whether samples are worked on one by one: several of them, on a processor, if each is `large`.

    Small ones take less time than the calls that a loop makes for each. An accelerator takes all at once.

    >>> one_by_one(torch.empty(0), (10,), True), one_by_one(torch.empty(0), (1, 1), True)
    (True, False)
    """
    return large and like.device.type == "cpu" and math.prod(lead) > 1


def samples(lead: Sequence[int], *tensors: Tensor | None, axes: int = 2) -> Iterator[tuple[Any, ...]]:
    """What of several tensors belongs to a sample, sample by sample.

    These are views: what is added to one of a tensor that samples share is added to that of all.

    Args:
        lead: leading axes, to which those of every tensor broadcast.
        tensors: any of them may be None, and then is.
        axes: how many axes of each tensor are a sample's own.

    >>> total = torch.zeros(1)
    >>> for value, shared in samples((3,), torch.ones(3, 1), total, axes=1):
    ...     _ = shared.add_(value)
    >>> total
    tensor([3.])
    """
    spread = [
        value if value is None else value.expand(*lead, *value.shape[value.dim() - axes :])
        for value in tensors
    ]
    for index in indices(*map(range, lead)):
        yield tuple(None if value is None else value[index] for value in spread)
