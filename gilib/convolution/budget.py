"""How much of a set of images is worked on at a time."""

from __future__ import annotations

from torch import Tensor

ACCELERATED = 64  # times as much as on a CPU: where every kernel has to be launched, cache is not what counts


def at_once(entries: int, images: Tensor, share: float) -> int:
    """Entries for one piece of work on a set of images.

    Args:
        entries: that stay in the cache of a CPU.
        images: the whole set.
        share: entries for one of the set, at most, and one image at least. With it a CPU's peak memory beyond
            inputs and results is at most three times the inputs; where the moments are larger than the
            images (small images, many channels), there are up to two copies of the moments besides.

    >>> import torch
    >>> at_once(1000, torch.empty(5000), 0.5), at_once(1000, torch.empty(600), 0.5)
    (1000, 300)
    >>> at_once(1000, torch.empty(600, device="meta"), 0.5)
    64000
    """
    if images.device.type != "cpu":
        return ACCELERATED * entries
    return min(entries, int(share * images.numel()))
