"""The number of entries of a set of images that are processed at a time."""

from __future__ import annotations

from torch import Tensor

ACCELERATED = 64  # times as many as on a CPU: on accelerators launches of kernels matter, not the cache


def at_once(entries: int, images: Tensor, share: float) -> int:
    """Return the number of entries to process at a time.

    Args:
        entries: number of entries that fit into a CPU's cache.
        images: the complete set.
        share: upper limit on a CPU, as a multiple of the entries of the set. It keeps the peak memory beyond
            inputs and results below three times the inputs; if the moments are larger than the images (small
            images, many channels), up to two copies of the moments are added.

    >>> import torch
    >>> at_once(1000, torch.empty(5000), 0.5), at_once(1000, torch.empty(600), 0.5)
    (1000, 300)
    >>> at_once(1000, torch.empty(600, device="meta"), 0.5)
    64000
    """
    if images.device.type != "cpu":
        return ACCELERATED * entries
    return min(entries, int(share * images.numel()))
