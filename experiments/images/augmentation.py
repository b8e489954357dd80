"""Random flips and shifts of images, drawn and applied on the images' device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from gilib.arguments import CountOrZero, checked
from gilib.validation import check_is_tensor


@checked
def random_flip(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Mirror each image left to right with probability one half, independently.

    Args:
        x: images `[..., C, H, W]` of any dtype.
        generator: a generator on the device of `x`; torch's default if not given.

    Raises:
        ValueError: if `x` has fewer than three axes, or `generator` is on another device.

    >>> random_flip(torch.zeros(8, 3, 32, 32)).shape
    torch.Size([8, 3, 32, 32])
    """
    _check(x, generator)
    flipped = torch.rand((*x.shape[:-3], 1, 1, 1), generator=generator, device=x.device) < 0.5
    return torch.where(flipped, x.flip(-1), x)


@checked
def random_crop(x: Tensor, padding: CountOrZero = 4, generator: torch.Generator | None = None) -> Tensor:
    """Pad each image with zeros and cut out a window of its original size at a random place, independently.

    All `(2 padding + 1)²` places are equally likely. Zero is black for pixels and the mean colour for
    normalised images.

    Args:
        x: images `[..., C, H, W]` of any dtype.
        padding: rows and columns of zeros on each side.
        generator: a generator on the device of `x`; torch's default if not given.

    Raises:
        ValueError: if `padding` is not an integer of at least 0, `x` has fewer than three axes, or
            `generator` is on another device.

    >>> random_crop(torch.zeros(8, 3, 32, 32), padding=2).shape
    torch.Size([8, 3, 32, 32])
    """
    _check(x, generator)
    images = x.reshape(-1, *x.shape[-3:])  # [B, C, H, W]
    n = len(images)
    top, left = torch.randint(2 * padding + 1, (2, n), generator=generator, device=x.device).unbind()  # [B]
    padded = functional.pad(images, (padding,) * 4)
    windows = padded.unfold(-2, x.shape[-2], 1).unfold(-2, x.shape[-1], 1)  # [B, C, places, places, H, W]
    return windows[torch.arange(n, device=x.device), :, top, left].reshape(x.shape)


@checked
def random_flip_and_crop(
    x: Tensor, padding: CountOrZero = 4, generator: torch.Generator | None = None
) -> Tensor:
    """Augment images as is usual for CIFAR-10: `random_flip`, then `random_crop`.

    The result depends only on `x` and the state of `generator`; `x` is not changed, and no value is read back
    from the device. To pad with black, as pipelines that work on files do, augment pixels and normalise
    afterwards: zeros in normalised images are the mean colour.

    Arguments and errors are those of `random_crop`.

    >>> generator = torch.Generator().manual_seed(0)
    >>> random_flip_and_crop(torch.zeros(8, 3, 32, 32), generator=generator).shape
    torch.Size([8, 3, 32, 32])
    """
    return random_crop(random_flip(x, generator), padding, generator)


def _check(x: Tensor, generator: torch.Generator | None) -> None:
    if check_is_tensor(x, "x").dim() < 3:
        raise ValueError(f"images must be [..., C, H, W], got shape {tuple(x.shape)}")
    if generator is not None and generator.device.type != x.device.type:
        raise ValueError(
            f"the images are on {x.device} and the generator on {generator.device}: pass "
            f"torch.Generator({x.device.type!r})"
        )
