"""Correlations of sets of images at the lags within a kernel, as gradients of a convolution's weights.

For a convolution X * W with upstream gradient Y, the gradient of W is Σ_b Σ_u X_bc(u + l) Y_bo(u), which is
R_xy. With a kernel of 2k-1 pixels, and X instead of Y, it is R_xx. The adjoints are convolutions, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad
from torch.nn.grad import conv2d_weight

from gilib.convolution.images import at_once
from gilib.convolution.windows import Pair
from gilib.linalg.blocks import pieces

CHUNK = 2**19  # entries of padded images per convolution and thread: longer sums lose digits
SHARE = 1.25  # limit of the entries on a CPU, as a multiple of the entries of all images x


@dataclass(frozen=True)
class DirectCorrelation:
    """The correlations of `gilib.convolution.spectral.SpectralCorrelation`, without Fourier transforms."""

    kernel: Pair  # k, (height, width)
    padding: Pair  # p, (k-1)/2 if circular
    circular: bool  # whether images wrap around; if so, they have at least k-1 pixels

    @classmethod
    def of(cls, x: Tensor, kernel: Pair, padding: Pair, circular: bool) -> DirectCorrelation:
        """Construct for any images; circular ones must have at least k-1 pixels."""
        return cls(kernel, padding, circular)

    def __call__(self, x: Tensor, y: Tensor | None, root: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Correlate the images of each of G sets; see `SpectralCorrelation`."""
        (rows, columns), channels = self._reach, x.shape[2]
        auto = x.new_zeros(len(x), channels, channels, rows + 1, 2 * columns + 1)  # lags in rows 1-k ... 0
        cross = None if y is None else x.new_zeros(len(x), y.shape[2], channels, *self.kernel)
        for g, part, weights in self._parts(x, root):
            images = x[g, part]
            rising = self._padded(images, (rows, 0), (columns, columns))
            auto[g] += conv2d_weight(rising, auto.shape[1:], _times(images, weights))
            if y is not None and cross is not None:
                around = self._around(images, self.padding)
                cross[g] += conv2d_weight(around, cross.shape[1:], _times(y[g, part], weights))
        # R_xx[-d] = R_xx[d]ᵀ: lags up to 0 were computed, the others are their transposes
        half = auto.flatten(3)[..., : auto.shape[3] * auto.shape[4] - columns].permute(3, 0, 1, 2)
        whole = torch.cat([half, half[:-1].flip(0).mT])
        return whole, None if cross is None else cross.flatten(3).permute(3, 0, 2, 1)

    def write_adjoint(
        self,
        x: Tensor,
        y: Tensor | None,
        root: Tensor | None,
        d_auto: Tensor,
        d_cross: Tensor,
        d_x: Tensor,
        d_y: Tensor | None,
    ) -> None:
        """Write the gradients of x and y, given those of R_xx and R_xy, to `d_x` and `d_y`."""
        rows, columns = self._reach
        # x is both factors of R_xx: add the gradient at lag d and the transposed one at lag -d
        both = (d_auto + d_auto.flip(0).mT).permute(1, 2, 3, 0).contiguous()
        both = both.unflatten(3, (2 * rows + 1, 2 * columns + 1))
        outside = (rows - self.padding[0], columns - self.padding[1])
        kernels, back = (None, None) if y is None else self._cross_kernels(d_cross)
        for g, part, weights in self._parts(x, root):
            images = x[g, part]
            gradient = conv2d(self._around(images, self._reach), both[g])
            if y is not None and d_y is not None and kernels is not None and back is not None:
                gradient += conv2d(self._around(y[g, part], outside), back[g])
                d_y[g, part] = _times(conv2d(self._around(images, self.padding), kernels[g]), weights)
            d_x[g, part] = _times(gradient, weights)

    def _cross_kernels(self, d_cross: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of R_xy as kernels from x to y, `[G, O, C, k, k]`, and from y to x."""
        kernels = d_cross.permute(1, 3, 2, 0).contiguous().unflatten(3, self.kernel)
        return kernels, kernels.transpose(1, 2).flip(3, 4).contiguous()

    @property
    def _reach(self) -> Pair:
        """The largest lags, k-1."""
        return self.kernel[0] - 1, self.kernel[1] - 1

    def _around(self, images: Tensor, width: Pair) -> Tensor:
        return self._padded(images, (width[0], width[0]), (width[1], width[1]))

    def _padded(self, images: Tensor, rows: Pair, columns: Pair) -> Tensor:
        """Pad images `[B, C, H, W]` with rows (above, below) and columns (left, right)."""
        if not any((*rows, *columns)):
            return images
        return pad(images, (*columns, *rows), mode="circular" if self.circular else "constant")

    def _parts(self, x: Tensor, root: Tensor | None) -> Iterator[tuple[int, slice, Tensor | None]]:
        height, width = (n + 2 * far for n, far in zip(x.shape[-2:], self._reach, strict=True))
        most = at_once(CHUNK * torch.get_num_threads(), x[0], SHARE)
        step = max(1, most // (x.shape[2] * height * width))
        for g in range(len(x)):
            for part in pieces(x.shape[1], step):
                yield g, part, None if root is None else root[part].square()


def _times(images: Tensor, weights: Tensor | None) -> Tensor:
    return images if weights is None else images * weights[:, None, None, None]
