"""Work on a batch in pieces that stay in a processor's cache.

A batch of a few hundred matrices takes megabytes, and so does every temporary made from it. All at once, each
of them travels to memory and back, and the allocator returns it to the system and asks for it again, page by
page. Piece by piece they stay in cache, in memory that the process has. An accelerator takes all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

BLOCK_BYTES = 2**20  # of one temporary: smaller pieces cost more calls than they save


def at_once(like: Tensor, entries: int) -> int:
    """How many items of `entries` numbers, of the kind of `like`, make a piece: one at least.

    >>> import torch
    >>> at_once(torch.empty(0), 2**16), at_once(torch.empty(0), 2**30)
    (4, 1)
    """
    if like.device.type != "cpu":
        return 2**62
    return max(1, BLOCK_BYTES // max(1, entries * like.element_size()))


def pieces(count: int, step: int) -> Iterator[slice]:
    """0 ... `count` - 1 in consecutive pieces of `step`, the last of which may be smaller.

    >>> list(pieces(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def piecewise(
    function: Callable[..., tuple[Tensor, ...]], matrices: Tensor, *others: Tensor
) -> tuple[Tensor, ...]:
    """What `function` makes of a batch, piece by piece if two temporaries of its size are too large.

    Args:
        function: takes and gives batches, each tensor with B along its first axis.
        matrices: `[B, I, J]`, of which temporaries are made.
        others: of the same batch, `[B, ...]`.

    >>> import torch
    >>> piecewise(lambda a, b: (a @ b, a.mT), torch.eye(2)[None], torch.ones(1, 2, 1))[0].flatten()
    tensor([1., 1.])
    """
    count, step = len(matrices), at_once(matrices, 2 * matrices.shape[-2:].numel())
    if count <= step:
        return function(matrices, *others)
    whole: tuple[Tensor, ...] = ()
    for part in pieces(count, step):
        found = function(matrices[part], *(other[part] for other in others))
        whole = whole or tuple(each.new_empty(count, *each.shape[1:]) for each in found)
        for all_of, each in zip(whole, found, strict=True):
            all_of[part] = each
    return whole
