"""Second moments of the windows beyond the border, which a padded convolution does not have.

Along each axis, a convolution with kernel k and padding p < k-1 has k-1-p fewer windows at either end than
touch the image; they see only the outermost k-1-p pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from gilib.convolution.direct import DirectCorrelation
from gilib.convolution.spectral import SpectralCorrelation
from gilib.convolution.windows import Windows

Place = tuple[slice, slice]
Correlation = SpectralCorrelation | DirectCorrelation


@dataclass(frozen=True)
class Axis:
    """Windows along one axis: either those at every pixel, or the missing ones beyond the border."""

    kernel: int  # number of pixels of a window that lags distinguish: k, or 1 if pixels count as channels
    # pixels that the windows see: all pixels, or the outermost at the low and at the high end
    sides: tuple[slice, ...]
    # for each side, and each window there, a slice of the kernel and the slice of pixels under it
    places: tuple[tuple[Place, ...], ...]

    @classmethod
    def inside(cls, size: int, kernel: int) -> Axis:
        """Describe windows at every pixel, whose moments depend only on lags."""
        return cls(kernel, (slice(0, size),), (((slice(0, kernel), slice(0, kernel)),),))

    @classmethod
    def outside(cls, size: int, kernel: int, padding: int) -> Axis:
        """Describe the missing windows at either end."""
        extra = kernel - 1 - padding
        # Missing window m = 1 ... extra at the low end begins m pixels before the first window, at pixel
        # -padding - m: its first padding + m pixels see zeros. The high end is the mirror image.
        low = tuple((slice(padding + m, kernel), slice(0, extra + 1 - m)) for m in range(1, extra + 1))
        high = tuple((slice(0, extra + 1 - m), slice(m - 1, extra)) for m in range(1, extra + 1))
        return cls(1, (slice(0, extra), slice(size - extra, size)), (low, high))

    @property
    def is_inside(self) -> bool:
        """Whether these are windows at every pixel."""
        return len(self.sides) == 1

    @property
    def split(self) -> tuple[int, int]:
        """Shape (channels, pixels) into which the pixels of a side are split."""
        length = self.sides[0].stop - self.sides[0].start
        return (1, length) if self.is_inside else (length, 1)


@dataclass(frozen=True)
class Strips:
    """A term of the inclusion-exclusion sum: strips along the border, whose rows or columns are channels."""

    vertical: Axis  # windows along the height
    horizontal: Axis  # windows along the width
    windows: Windows  # windows of the convolution

    @classmethod
    def all(cls, size: tuple[int, ...], windows: Windows) -> list[Strips]:
        """Return all terms: first the windows at every pixel, then the missing ones."""
        axes = []
        for n, k, p in zip(size, windows.kernel, windows.padding, strict=True):
            axes.append([Axis.inside(n, k)])
            if p < k - 1 and not windows.circular:
                axes[-1].append(Axis.outside(n, k, p))
        return [cls(vertical, horizontal, windows) for vertical, horizontal in product(*axes)]

    @property
    def sign(self) -> int:
        """Sign of the term, 1 or -1."""
        # Borders are subtracted. Corners lie in two borders, were subtracted twice, and are added again.
        return 1 if self.vertical.is_inside == self.horizontal.is_inside else -1

    @property
    def turned(self) -> bool:
        """Whether to transpose vertical strips: Fourier transforms are faster along rows."""
        return not self.horizontal.is_inside

    def correlation(self, images: Tensor, kind: type[Correlation]) -> Correlation:
        """Return the correlation, of the given kind, that computes the lags of strips like `images`."""
        whole = self.vertical.is_inside and self.horizontal.is_inside
        padding = self.windows.padding if whole else (0, 0)
        kernel = (self.vertical.kernel, self.horizontal.kernel)
        kernel = kernel[::-1] if self.turned else kernel
        return kind.of(images, kernel, padding, self.windows.circular)

    def cut(self, images: Tensor) -> Tensor:
        """Cut strips out of `images` `[B, C, H, W]`: `[G, B, C n, L_h, L_w]`, transposed if `turned`."""
        (rows, down), (columns, across) = self.vertical.split, self.horizontal.split
        shape = (*images.shape[:2], rows, down, columns, across)
        parts = [part.reshape(shape).transpose(3, 4).flatten(1, 3) for part in self._parts(images)]
        return torch.stack([part.mT if self.turned else part for part in parts])

    def add_back(self, strips: Tensor, images: Tensor) -> None:
        """Add the adjoint of `cut` to `images`."""
        (rows, down), (columns, across) = self.vertical.split, self.horizontal.split
        shape = (*images.shape[:2], rows, columns, down, across)
        for strip, part in zip(strips, self._parts(images), strict=True):
            upright = strip.mT if self.turned else strip
            part += upright.reshape(shape).transpose(3, 4).reshape(part.shape)

    def _parts(self, images: Tensor) -> list[Tensor]:
        sides = product(self.vertical.sides, self.horizontal.sides)
        return [images[..., rows, columns] for rows, columns in sides]

    def spread(self, lags: Tensor) -> Tensor:
        """Arrange R_xx `[lags, G, C n, C n]` by pairs of pixels in a window, `[G, C, a, b, C, a, b]`."""
        seen = self._by_lag(lags)
        sets, channels, rows, columns = seen.shape[2:6]
        down, across = self.vertical.kernel, self.horizontal.kernel
        pairs = lags.new_empty(sets, *(channels, down, rows, across, columns) * 2)
        for a, b in product(range(down), range(across)):
            pairs[:, :, a, :, b] = self._from_pixel(seen, a, b)
        return pairs.view(sets, *(channels, down * rows, across * columns) * 2)

    def gather(self, pairs: Tensor) -> Tensor:
        """Apply the adjoint of `spread`."""
        (rows, _), (columns, _) = self.vertical.split, self.horizontal.split
        down, across = self.vertical.kernel, self.horizontal.kernel
        sets, channels = pairs.shape[:2]
        pairs = pairs.reshape(sets, *(channels, down, rows, across, columns) * 2)
        lags = pairs.new_zeros((2 * down - 1) * (2 * across - 1), sets, *(channels * rows * columns,) * 2)
        seen = self._by_lag(lags)
        for a, b in product(range(down), range(across)):  # each lag occurs in several pairs: sum them
            self._from_pixel(seen, a, b).add_(pairs[:, :, a, :, b])
        return lags

    def _by_lag(self, lags: Tensor) -> Tensor:
        """View lags as `[2a-1, 2b-1, G, C, rows, columns, C, rows, columns]`."""
        (rows, _), (columns, _) = self.vertical.split, self.horizontal.split
        channels = lags.shape[-1] // (rows * columns)
        shape = (2 * self.vertical.kernel - 1, 2 * self.horizontal.kernel - 1, lags.shape[1])
        return lags.view(*shape, *(channels, rows, columns) * 2)

    def _from_pixel(self, seen: Tensor, a: int, b: int) -> Tensor:
        """Select lags from pixel (a, b) to all, `[G, C, rows, columns, C, a', rows, b', columns]`."""
        # Pixel (a, b) and pixel (a', b') have the lag (a' - a, b' - b), stored at a' - a + down - 1.
        down, across = self.vertical.kernel, self.horizontal.kernel
        seen = seen[down - 1 - a : 2 * down - 1 - a, across - 1 - b : 2 * across - 1 - b]
        return seen.permute(2, 3, 4, 5, 6, 0, 7, 1, 8)

    def zeros(self, like: Tensor, channels: int) -> Tensor:
        """Return zeros in the shape of `spread`."""
        (rows, _), (columns, _) = self.vertical.split, self.horizontal.split
        shape = (channels, self.vertical.kernel * rows, self.horizontal.kernel * columns)
        return like.new_zeros(len(self.vertical.sides) * len(self.horizontal.sides), *shape * 2)

    def places(self) -> Iterator[tuple[tuple[slice, ...], tuple[int | slice, ...]]]:
        """Yield, for every window, the indices of its pairs in `[C, k, k, C, k, k]` and in `spread`."""
        every = slice(None)
        sides = product(self.vertical.places, self.horizontal.places)
        for index, (vertical, horizontal) in enumerate(sides):
            for (down, rows), (across, columns) in product(vertical, horizontal):
                yield (every, down, across) * 2, (index, *(every, rows, columns) * 2)
