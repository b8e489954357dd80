"""Sets of images: their padding and its adjoint, and how many entries are processed at a time."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

from gilib.convolution.windows import Windows

ACCELERATED = 64  # times as many as on a CPU: on accelerators launches of kernels matter, not the cache


def at_once(entries: int, images: Tensor, share: float) -> int:
    """Return the number of entries to process at a time, given how many fit into a CPU's cache.

    On a CPU they are at most `share` times the entries of `images`. This keeps the peak memory beyond inputs
    and results below three times the inputs, plus twice the moments if these are larger.

    >>> import torch
    >>> at_once(1000, torch.empty(5000), 0.5), at_once(1000, torch.empty(600), 0.5)
    (1000, 300)
    >>> at_once(1000, torch.empty(600, device="meta"), 0.5)
    64000
    """
    if images.device.type != "cpu":
        return ACCELERATED * entries
    return min(entries, int(share * images.numel()))


def padded(images: Tensor, windows: Windows) -> Tensor:
    """Pad images `[B, C, H, W]` as `windows` say, `[B, C, H + 2p, W + 2p]`."""
    above, left = windows.padding
    if not (above or left):
        return images
    return pad(images, (left, left, above, above), mode="circular" if windows.circular else "constant")


def unpadded(values: Tensor, windows: Windows) -> Tensor:
    """Apply the adjoint of `padded`: add values of copied pixels in place, and return a view of `values`."""
    for axis, width in zip((2, 3), windows.padding, strict=True):
        inner = values.shape[axis] - 2 * width
        if windows.circular and width:
            values.narrow(axis, inner, width).add_(values.narrow(axis, 0, width))
            values.narrow(axis, width, width).add_(values.narrow(axis, width + inner, width))
        values = values.narrow(axis, width, inner)
    return values
