"""Moments of windows with strides, or not at every pixel, from those of windows at every pixel.

Pixel δ of window u is pixel s u + δ of the padded image. Write δ = s q + r: this is pixel u + q of phase r,
the image of every s-th pixel starting at pixel r. So windows of k pixels with stride s are windows of ⌈k/s⌉
pixels at every pixel of an image whose channels are the phases of all channels. Their moments include all
that are needed and, unless s divides k, some that are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import pad

from gilib.convolution.images import padded, unpadded
from gilib.convolution.windows import Pair, Windows


@dataclass(frozen=True)
class Phases:
    """The correspondence between windows of an image and windows at every pixel of its phases."""

    windows: Windows  # windows of the image
    places: Pair  # numbers of windows, (vertical, horizontal)

    @property
    def count(self) -> Pair:
        """Numbers of phases with a pixel in the window, min(s, k)."""
        down, across = (min(s, k) for s, k in zip(self.windows.stride, self.windows.kernel, strict=True))
        return down, across

    @property
    def kernel(self) -> Pair:
        """Pixels of a window in every phase, ⌈k/s⌉."""
        down, across = (-(-k // s) for s, k in zip(self.windows.stride, self.windows.kernel, strict=True))
        return down, across

    @property
    def size(self) -> Pair:
        """Pixels of a phase that lie in windows."""
        height, width = (n + k - 1 for n, k in zip(self.places, self.kernel, strict=True))
        return height, width

    @property
    def inside(self) -> Windows:
        """The windows at every pixel of the phases."""
        return Windows(self.kernel, (1, 1), (0, 0), "zero")

    def split(self, images: Tensor) -> Tensor:
        """Split `images` `[B, C, H, W]` into r phases per channel, which run fastest, `[B, C r, *size]`."""
        around = padded(images, self.windows)
        below, right = (n - had for n, had in zip(self._covered, around.shape[-2:], strict=True))
        around = pad(around, (0, right, 0, below))
        return self._grid(around).permute(0, 1, 3, 5, 2, 4).flatten(1, 3)

    def join(self, phases: Tensor, images: Tensor) -> None:
        """Write the adjoint of `split` to `images`."""
        height, width = (n + 2 * p for n, p in zip(images.shape[-2:], self.windows.padding, strict=True))
        rows, columns = self._covered
        around = phases.new_zeros(*images.shape[:2], max(height, rows), max(width, columns))
        values = phases.unflatten(1, (-1, *self.count)).permute(0, 1, 4, 2, 5, 3)
        self._grid(around[..., :rows, :columns]).copy_(values)
        images.copy_(unpadded(around[..., :height, :width], self.windows))

    def needed_indices(self, channels: int, like: Tensor) -> Tensor:
        """Return the rows of the moments of phases that belong to pixels of windows, `[C K]`."""
        (down, across), pixels = self.windows.stride, prod(self.kernel)
        a, b = (torch.arange(k, device=like.device) for k in self.windows.kernel)
        phase = (a % down * self.count[1])[:, None] + b % across
        place = phase * pixels + (a // down * self.kernel[1])[:, None] + b // across
        each = torch.arange(channels, device=like.device) * (prod(self.count) * pixels)
        return (each[:, None] + place.flatten()).flatten()

    def _grid(self, whole: Tensor) -> Tensor:
        """View the phases as `[B, C, size, phases, size, phases]`."""
        (down, across), (rows, columns) = self.windows.stride, self.count
        split = whole.unflatten(3, (-1, across)).unflatten(2, (-1, down))
        return split[:, :, :, :rows, :, :columns]

    @property
    def _covered(self) -> Pair:
        """Pixels of the padded image that complete phases need; some may lie beyond the image."""
        height, width = (n * s for n, s in zip(self.size, self.windows.stride, strict=True))
        return height, width
