"""What the moments of a set of images cost by every route: a model, fitted to measured times."""

from __future__ import annotations

from math import ceil, inf, prod
from typing import NamedTuple

import torch
from torch import Tensor

from gilib.convolution.phases import Phases
from gilib.convolution.spectral import SpectralCorrelation
from gilib.convolution.windows import Pair, Windows

# Nanoseconds on one core in float32, forward and backward, fitted to times at 4 x 4 to 32 x 32 pixels.
OPERATION = 0.0125  # of a product of small matrices
PATCH_ENTRY = 2.2  # to cut out and to put back one number
COEFFICIENT = 13.0  # to transform one number: forward, once more in the backward pass, and back
CONVOLVED = 0.0046  # an operation of a convolution
PIXEL = 4.7  # to pad and weight one number, and to add its gradient
PAIR = 130.0  # to arrange one moment of phases, and its gradient, of which not all are wanted
START = {"spectral": 2e6, "convolution": 1e6}  # of one correlation; borders take three


class Work(NamedTuple):
    """The sizes that costs depend on.

    Attributes:
        images: how many.
        channels: of x.
        size: of x, (height, width).
        outputs: channels of y.
        places: windows, (vertical, horizontal).
        quick: whether there is a fast library for convolutions.
    """

    images: int
    channels: int
    size: Pair
    outputs: int
    places: Pair
    quick: bool

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Work:
        """For images x and y; convolutions in float64 are slow, and on a GPU nothing was measured."""
        (images, channels, *size), (outputs, *places) = x.shape[-4:], y.shape[-3:]
        quick = x.dtype == torch.float32 and x.device.type == "cpu"
        return cls(images, channels, (size[0], size[1]), outputs, (places[0], places[1]), quick)

    def by_phase(self, windows: Windows) -> tuple[Work, Windows]:
        """The same as windows at every pixel of the images' phases."""
        phases = Phases(windows, self.places)
        return self._replace(channels=self.channels * prod(phases.count), size=phases.size), phases.inside


def patches_time(work: Work, windows: Windows) -> float:
    """Nanoseconds by patches."""
    rows, size = work.images * prod(work.places), work.channels * windows.pixels
    products = 2 * (2 * size**2 + 3 * size * work.outputs)
    return rows * (OPERATION * products + PATCH_ENTRY * (size + work.outputs))


def spectral_time(work: Work, windows: Windows) -> float:
    """Nanoseconds by Fourier coefficients."""
    if not windows.at_every_pixel(work.size):
        return _phases_time(work, windows) + spectral_time(*work.by_phase(windows))
    circle = SpectralCorrelation.circle(work.size, windows.kernel, windows.padding, windows.circular)
    frequencies = circle[0] * (circle[1] // 2 + 1)
    products = frequencies * (7 * work.channels**2 + 12 * work.channels * work.outputs)
    products += 7 * work.channels**2 * _border(windows, circle)
    time = 2 * frequencies * work.images * (work.channels + work.outputs) * COEFFICIENT
    return time + OPERATION * 2 * work.images * products + START["spectral"] * _correlations(windows)


def convolution_time(work: Work, windows: Windows) -> float:
    """Nanoseconds by gradients of a convolution's weights."""
    if not work.quick:
        return inf
    if not windows.at_every_pixel(work.size):
        return _phases_time(work, windows) + convolution_time(*work.by_phase(windows))
    down, across = (2 * k - 1 for k in windows.kernel)
    lagged = (windows.kernel[0] + down) * across
    entries = work.images * prod(work.size) * (work.channels + work.outputs)
    channels, outputs = (8 * ceil(n / 8) for n in (work.channels, work.outputs))  # as many at a time
    products = prod(work.size) * (lagged * channels**2 + 3 * windows.pixels * channels * outputs)
    products += lagged * channels**2 * _border(windows, work.size)
    time = CONVOLVED * 2 * work.images * products + PIXEL * entries
    return time + START["convolution"] * _correlations(windows)


def _phases_time(work: Work, windows: Windows) -> float:
    """To put pixels in order by phase, twice, and their gradients back; and to select moments."""
    phases, inside = work.by_phase(windows)
    entries = work.images * work.channels * prod(work.size)
    return PIXEL * entries + PAIR * (phases.channels * inside.pixels) ** 2


def _sticking_out(windows: Windows) -> Pair:
    if windows.circular:
        return 0, 0
    rows, columns = (max(0, k - 1 - p) for k, p in zip(windows.kernel, windows.padding, strict=True))
    return rows, columns


def _correlations(windows: Windows) -> int:
    """Of the whole images, and of the strips along the borders where windows stick out."""
    return 3 if any(_sticking_out(windows)) else 1


def _border(windows: Windows, size: Pair) -> int:
    """The pixels of all strips, times the squares of the factors by which they multiply channels."""
    rows, columns = _sticking_out(windows)
    return rows**2 * size[1] + columns**2 * size[0] + 4 * prod((rows, columns)) ** 2
