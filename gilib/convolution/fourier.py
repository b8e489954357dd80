"""Two-dimensional Fourier coefficients of sets of images, frequencies first."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.convolution.windows import Pair


def fast_length(least: int) -> int:
    """The smallest even number from `least` on with prime factors up to 7 (or 1): such transforms are fast.

    >>> fast_length(34), fast_length(1)
    (36, 1)
    """
    length = least
    while length > 1 and (length % 2 or 210**8 % length):
        length += 1
    return length


@dataclass(frozen=True)
class Transform:
    """X̂(ω) = Σ_u X(u) exp(-i ω·u) at the frequencies of a circle of pixels, and its adjoint.

    Images are real, so that half of the horizontal frequencies tell the others.

    Attributes:
        size: pixels of the circle, (height, width), at least those of the images.
    """

    size: Pair

    @property
    def frequencies(self) -> Pair:
        """How many there are, vertical and horizontal; the horizontal one runs fastest."""
        return self.size[0], self.size[1] // 2 + 1

    def coefficients(self, images: Tensor, root: Tensor | None) -> Tensor:
        """Real and imaginary parts of the coefficients of G sets of images, weighted.

        Args:
            images: `[G, B, C, H, W]`.
            root: weights of the images, `[B]`, or None.

        Returns:
            `[2, F, G, B, C]`.
        """
        weighted = images if root is None else images * root[:, None, None, None]
        if self.size[0] > 1:
            spectrum = torch.fft.rfft2(weighted, s=self.size)
        else:
            spectrum = torch.fft.rfft(weighted, n=self.size[1])
        return torch.view_as_real(spectrum).permute(5, 3, 4, 0, 1, 2).contiguous().flatten(1, 2)

    def inverse(self, coefficients: Tensor, root: Tensor | None, size: Pair) -> Tensor:
        """Images of `size` with these coefficients, weighted: the adjoint of `coefficients` after `share`."""
        spectrum = torch.view_as_complex(coefficients.permute(2, 3, 4, 1, 0).contiguous())
        spectrum = spectrum.unflatten(3, self.frequencies)
        if self.size[0] > 1:
            spectrum = torch.fft.ifft(spectrum, dim=-2)[..., : size[0], :]
        images = torch.fft.irfft(spectrum, n=self.size[1])[..., : size[1]]
        return images if root is None else images * root[:, None, None, None]

    def share(self, like: Tensor) -> Tensor:
        """What each frequency, with its mirror image, counts in the inverse transform, `[F]`."""
        rows, columns = self.frequencies
        column = torch.arange(columns, device=like.device)
        alone = (column == 0) | (2 * column == self.size[1])
        return ((2.0 - alone.to(like.dtype)) / math.prod(self.size)).repeat(rows)

    def waves(self, vertical: Tensor, horizontal: Tensor, like: Tensor) -> Tensor:
        """Cos and -sin of ω·d at n lags d: what takes coefficients, times `share`, to values there.

        Args:
            vertical: lags, `[n]`.
            horizontal: likewise.
            like: tells dtype and device.

        Returns:
            `[2, n, F]`.
        """
        rows, columns = (
            torch.arange(count, dtype=torch.float64, device=like.device) * (2.0 * math.pi / pixels)
            for count, pixels in zip(self.frequencies, self.size, strict=True)
        )
        angles = (vertical[:, None, None] * rows[:, None] + horizontal[:, None, None] * columns).flatten(1)
        return torch.stack([angles.cos(), -angles.sin()]).to(like.dtype)
