"""Checks of the arguments of `window_moments`, before any work starts."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.convolution.windows import Windows
from gilib.linalg import readable
from gilib.validation import check_is_tensor


def check_images(x: Tensor, y: Tensor, windows: Windows, precision: Tensor | None) -> None:
    """Raise an error unless images, outputs and precisions fit each other and the windows."""
    for value, name, axes in ((x, "x", "C, H, W"), (y, "y", "O, H', W'")):
        if check_is_tensor(value, name).dim() < 4:
            raise ValueError(f"{name} must have shape [..., B, {axes}], got {list(value.shape)}")
        if value.numel() == 0:
            raise ValueError(f"{name} is empty: its shape is {list(value.shape)}")
    _check_outputs(x, y, windows)
    _same(x, y, "y")
    shapes = [x.shape[:-4], y.shape[:-4]]
    if precision is not None:
        _same(x, check_is_tensor(precision, "precision"), "precision")
        if precision.shape[-1:] != x.shape[-4:-3]:
            raise ValueError(
                f"precision must have shape [..., {x.shape[-4]}], one weight for every image, "
                f"got {list(precision.shape)}"
            )
        if readable(precision) and bool((precision < 0).any()):
            raise ValueError("precision must not be negative: it weights the images")
        shapes.append(precision.shape[:-1])
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        given = " and ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"leading axes must broadcast, got {given}") from None


def _check_outputs(x: Tensor, y: Tensor, windows: Windows) -> None:
    if x.shape[-4] != y.shape[-4]:
        raise ValueError(f"x holds {x.shape[-4]} images and y {y.shape[-4]}: give as many of each")
    wanted = windows.output_size((x.shape[-2], x.shape[-1]))
    if tuple(y.shape[-2:]) != wanted:
        raise ValueError(
            f"y must have one entry for every window, [..., B, O, {wanted[0]}, {wanted[1]}], for images of "
            f"{list(x.shape[-2:])} pixels, kernel {list(windows.kernel)}, stride {list(windows.stride)} "
            f"and padding {list(windows.padding)}; got {list(y.shape)}"
        )


def _same(x: Tensor, other: Tensor, name: str) -> None:
    if x.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(f"x must hold float32 or float64 numbers, got {x.dtype}: sums need them")
    if not x.is_floating_point() or other.dtype != x.dtype or other.device != x.device:
        raise ValueError(
            f"x and {name} must be floating-point numbers of one dtype on one device, got {x.dtype} on "
            f"{x.device} and {other.dtype} on {other.device}"
        )
