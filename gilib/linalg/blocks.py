"""Process a batch in pieces that fit into a processor's cache.

Temporaries of a whole batch travel to main memory and back, and their memory is requested anew, page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

BLOCK_BYTES = 2**20  # size of one temporary: with smaller pieces, calls cost more than the cache saves


def at_once(like: Tensor, entries: int) -> int:
    """Return how many items of `entries` numbers, with dtype and device of `like`, one piece holds."""
    if like.device.type != "cpu":
        return 2**62
    return max(1, BLOCK_BYTES // max(1, entries * like.element_size()))


def pieces(count: int, step: int) -> Iterator[slice]:
    """Yield slices that split `count` items into consecutive pieces of `step`; the last may be smaller."""
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def piecewise(
    function: Callable[..., tuple[Tensor, ...]], matrices: Tensor, *others: Tensor, step: int | None = None
) -> tuple[Tensor, ...]:
    """Apply `function` to a batch, piece by piece if two temporaries of its size exceed the block size.

    The batch axis is the first of every tensor; `matrices`, `[B, I, J]`, is as large as the temporaries.
    `step` is the size of a piece, if it is another.
    """
    count, step = len(matrices), step or at_once(matrices, 2 * matrices.shape[-2:].numel())
    if count <= step:
        return function(matrices, *others)
    whole: tuple[Tensor, ...] = ()
    for part in pieces(count, step):
        found = function(matrices[part], *(other[part] for other in others))
        whole = whole or tuple(each.new_empty(count, *each.shape[1:]) for each in found)
        for all_of, each in zip(whole, found, strict=True):
            all_of[part] = each
    return whole
