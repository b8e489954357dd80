"""Two-dimensional Fourier coefficients of sets of images, with frequencies as the first axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.convolution.windows import Pair


def fast_length(least: int) -> int:
    """Return the smallest even number ≥ `least` without prime factors above 7 (or 1), for fast transforms.

    >>> fast_length(34), fast_length(1)
    (36, 1)
    """
    length = least
    while length > 1 and (length % 2 or 210**8 % length):
        length += 1
    return length


@dataclass(frozen=True)
class Transform:
    """The discrete Fourier transform X̂(ω) = Σ_u X(u) exp(-i ω·u) of periodic images, and its adjoint.

    Images are real, so half of the horizontal frequencies determine the others.

    Attributes:
        size: pixels of one period, (height, width), at least those of the images.
    """

    size: Pair

    @property
    def frequencies(self) -> Pair:
        """Numbers of vertical and horizontal frequencies; the horizontal ones run fastest."""
        return self.size[0], self.size[1] // 2 + 1

    def coefficients(self, images: Tensor, root: Tensor | None) -> Tensor:
        """Return the coefficients of G sets of weighted images.

        Args:
            images: `[G, B, C, H, W]`.
            root: weights of the images, `[B]`; 1 if None.

        Returns:
            Real and imaginary parts, `[2, F, G, B, C]`.
        """
        weighted = images if root is None else images * root[:, None, None, None]
        if self.size[0] > 1:
            spectrum = torch.fft.rfft2(weighted, s=self.size)
        else:
            spectrum = torch.fft.rfft(weighted, n=self.size[1])
        return torch.view_as_real(spectrum).permute(5, 3, 4, 0, 1, 2).contiguous().flatten(1, 2)

    def inverse(self, coefficients: Tensor, root: Tensor | None, size: Pair) -> Tensor:
        """Return weighted images with these coefficients; with `share` the adjoint of `coefficients`."""
        spectrum = torch.view_as_complex(coefficients.permute(2, 3, 4, 1, 0).contiguous())
        spectrum = spectrum.unflatten(3, self.frequencies)
        if self.size[0] > 1:
            spectrum = torch.fft.ifft(spectrum, dim=-2)[..., : size[0], :]
        images = torch.fft.irfft(spectrum, n=self.size[1])[..., : size[1]]
        return images if root is None else images * root[:, None, None, None]

    def share(self, like: Tensor) -> Tensor:
        """Return the weight of each frequency in the inverse transform, with its mirror image, `[F]`."""
        rows, columns = self.frequencies
        column = torch.arange(columns, device=like.device)
        alone = (column == 0) | (2 * column == self.size[1])
        return ((2.0 - alone.to(like.dtype)) / math.prod(self.size)).repeat(rows)

    def waves(self, vertical: Tensor, horizontal: Tensor, like: Tensor) -> Tensor:
        """Return cos and -sin of ω·d at n lags d, which map coefficients, times `share`, to values at d.

        Args:
            vertical: vertical lags, `[n]`.
            horizontal: horizontal lags, `[n]`.
            like: a tensor with the wanted dtype and device.

        Returns:
            `[2, n, F]`.
        """
        rows, columns = (
            torch.arange(count, dtype=torch.float64, device=like.device) * (2.0 * math.pi / pixels)
            for count, pixels in zip(self.frequencies, self.size, strict=True)
        )
        angles = (vertical[:, None, None] * rows[:, None] + horizontal[:, None, None] * columns).flatten(1)
        return torch.stack([angles.cos(), -angles.sin()]).to(like.dtype)
