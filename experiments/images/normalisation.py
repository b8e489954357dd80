"""Scale each channel of images to mean zero and standard deviation one over a training set."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.arguments import FloatingType, checked

WHITE = 255


@dataclass(frozen=True, eq=False)
class ImageNormalisation:
    r"""Affine map from pixels to units in which each channel of the training images has mean 0, deviation 1.

    .. math:: \tilde x_c = (x_c / 255 - m_c) / s_c

    Attributes:
        x_mean: mean of each channel, `[C]`, as a fraction of white.
        x_std: standard deviation of each channel, `[C]`, as a fraction of white, positive.

    Raises:
        TypeError: if a statistic is not a floating-point tensor.
        ValueError: if the statistics do not have one shape `[C]`, or, on the CPU, are not finite or a
            deviation is not positive.

    >>> black_and_white = torch.tensor([0, 255], dtype=torch.uint8).reshape(1, 1, 1, 2)
    >>> ImageNormalisation.fit(black_and_white).x_mean
    tensor([0.5000], dtype=torch.float64)
    """

    x_mean: Tensor  # [C]
    x_std: Tensor  # [C]

    def __post_init__(self) -> None:
        for name in ("x_mean", "x_std"):
            value = getattr(self, name)
            if not isinstance(value, Tensor) or not value.is_floating_point():
                raise TypeError(
                    f"{name} must be a floating-point tensor, got {value!r}: use ImageNormalisation.fit"
                )
        if self.x_mean.dim() != 1 or self.x_mean.shape != self.x_std.shape:
            raise ValueError(
                "x_mean and x_std must have one entry per channel, got shapes "
                f"{tuple(self.x_mean.shape)} and {tuple(self.x_std.shape)}"
            )
        possible = torch.isfinite(self.x_mean) & torch.isfinite(self.x_std) & (self.x_std > 0)
        if possible.device.type == "cpu" and not bool(possible.all()):  # an accelerator is not made to wait
            raise ValueError(
                f"x_mean must be finite and x_std finite and positive, got {self.x_mean.tolist()} and "
                f"{self.x_std.tolist()}: fit them to images"
            )

    @classmethod
    def fit(cls, images: Tensor) -> ImageNormalisation:
        """Compute each channel's mean and unbiased deviation over all pixels; a constant one has deviation 1.

        Sums are exact integers, so the result does not depend on the machine.

        Args:
            images: training images, uint8 `[N, C, H, W]`.

        Raises:
            TypeError: if `images` is not uint8.
            ValueError: if `images` is empty or does not have four axes.
        """
        _check_pixels(images)
        if images.dim() != 4 or images.numel() == 0:
            raise ValueError(
                f"images must be [N, C, H, W] with at least one image, got {tuple(images.shape)}"
            )
        moments = [_mean_and_std(channel) for channel in images.unbind(1)]
        mean, std = torch.tensor(moments, dtype=torch.float64).unbind(1)
        return cls(mean, std)

    @checked
    def x(self, images: Tensor, dtype: FloatingType = torch.float32) -> Tensor:
        """Scale pixels, uint8 `[..., C, H, W]`, to normalised units, on their own device.

        Raises:
            TypeError: if `images` is not uint8, or `dtype` is not a floating-point type.
            ValueError: if `images` does not have C channels.

        >>> half = torch.full((1,), 0.5)
        >>> ImageNormalisation(half, half).x(torch.tensor([[[0, 255]]], dtype=torch.uint8))
        tensor([[[-1.,  1.]]])
        """
        _check_pixels(images)
        self._check_channels(images)
        mean, std = (value.to(images.device)[:, None, None] for value in (self.x_mean, self.x_std))
        scale = (std * WHITE).reciprocal()
        return images.to(dtype).mul_(scale.to(dtype)).add_((-mean / std).to(dtype))  # [..., C, H, W]

    def invert_x(self, x: Tensor) -> Tensor:
        """Scale normalised images `[..., C, H, W]` back to fractions of white, 0 to 1, for plots."""
        if not x.is_floating_point():
            raise TypeError(f"x must be normalised images of a floating-point type, got {x.dtype}")
        self._check_channels(x)
        return x * self.x_std.to(x)[:, None, None] + self.x_mean.to(x)[:, None, None]  # [..., C, H, W]

    def to(self, device: torch.device | str | None = None) -> ImageNormalisation:
        """Return this normalisation with its statistics on a device, so that `x` copies nothing there."""
        return ImageNormalisation(self.x_mean.to(device=device), self.x_std.to(device=device))

    def _check_channels(self, images: Tensor) -> None:
        if images.dim() < 3 or images.shape[-3] != len(self.x_mean):
            raise ValueError(
                f"images must be [..., C, H, W] with C = {len(self.x_mean)} channels, as the training images "
                f"have, got shape {tuple(images.shape)}"
            )


def _check_pixels(images: Tensor) -> None:
    if not isinstance(images, Tensor) or images.dtype != torch.uint8:
        got = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"images must be a uint8 tensor of pixels from 0 to 255, got {got}")


def _mean_and_std(channel: Tensor) -> tuple[float, float]:
    """Return mean and unbiased deviation of pixels, computed from the counts of the 256 values."""
    counts = torch.bincount(channel.reshape(-1), minlength=WHITE + 1).tolist()
    n = sum(counts)
    total = sum(value * count for value, count in enumerate(counts))
    squares = sum(value * value * count for value, count in enumerate(counts))
    variance = (n * squares - total * total) / (n * max(n - 1, 1))  # exact integers up to this division
    return total / (WHITE * n), math.sqrt(variance) / WHITE or 1.0
