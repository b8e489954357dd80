"""Pad images with zeros or with copies of their pixels, and the adjoint."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

from gilib.convolution.windows import Windows


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
