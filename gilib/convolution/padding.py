"""What surrounds an image: zeros or copies of its pixels, and the adjoint."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

from gilib.convolution.windows import Windows


def padded(images: Tensor, windows: Windows) -> Tensor:
    """Images `[B, C, H, W]` with the padding of `windows`, `[B, C, H + 2p, W + 2p]`."""
    above, left = windows.padding
    if not (above or left):
        return images
    return pad(images, (left, left, above, above), mode="circular" if windows.circular else "constant")


def unpadded(values: Tensor, windows: Windows) -> Tensor:
    """The adjoint of `padded`: a view of `values`, to which those of copied pixels were added in place."""
    for axis, width in zip((2, 3), windows.padding, strict=True):
        inner = values.shape[axis] - 2 * width
        if windows.circular and width:
            values.narrow(axis, inner, width).add_(values.narrow(axis, 0, width))
            values.narrow(axis, width, width).add_(values.narrow(axis, width + inner, width))
        values = values.narrow(axis, width, inner)
    return values
