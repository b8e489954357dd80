"""The three routes to the same moments, and the choice of the fastest by a model of their times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil, inf, prod
from typing import NamedTuple

import torch
from torch import Tensor

from gilib.convolution import lags, patches
from gilib.convolution.borders import Correlation
from gilib.convolution.direct import DirectCorrelation
from gilib.convolution.phases import Phases
from gilib.convolution.spectral import SpectralCorrelation
from gilib.convolution.windows import Pair, Windows

# Nanoseconds on one core in float32, forward and backward, fitted to times at 4 x 4 to 32 x 32 pixels.
OPERATION = 0.0125  # one operation of a product of small matrices
PATCH_ENTRY = 2.2  # to cut out one number, and to put its gradient back
COEFFICIENT = 13.0  # to transform one number: forward, again in the backward pass, and its gradient back
CONVOLVED = 0.0046  # an operation of a convolution
PIXEL = 4.7  # to pad and weight one number, and to add its gradient
PAIR = 130.0  # to arrange one moment of phases, needed or not, and its gradient
START = {"spectral": 2e6, "convolution": 1e6}  # fixed cost of one correlation; with borders there are three


class Work(NamedTuple):
    """The sizes that determine the costs."""

    images: int  # number of images
    channels: int  # channels of x
    size: Pair  # pixels of x, (height, width)
    outputs: int  # channels of y
    places: Pair  # numbers of windows, (vertical, horizontal)
    quick: bool  # whether a fast library for convolutions is available

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Work:
        """Read the sizes of x and y; only convolutions in float32 on a CPU are known to be fast."""
        (images, channels, *size), (outputs, *places) = x.shape[-4:], y.shape[-3:]
        quick = x.dtype == torch.float32 and x.device.type == "cpu"
        return cls(images, channels, (size[0], size[1]), outputs, (places[0], places[1]), quick)

    def by_phase(self, windows: Windows) -> tuple[Work, Windows]:
        """Return the equivalent work for windows at every pixel of the images' phases."""
        phases = Phases(windows, self.places)
        return self._replace(channels=self.channels * prod(phases.count), size=phases.size), phases.inside


def patches_time(work: Work, windows: Windows) -> float:
    """Return the nanoseconds of the route by patches."""
    rows, size = work.images * prod(work.places), work.channels * windows.pixels
    products = 2 * (2 * size**2 + 3 * size * work.outputs)
    return rows * (OPERATION * products + PATCH_ENTRY * (size + work.outputs))


def spectral_time(work: Work, windows: Windows) -> float:
    """Return the nanoseconds of the route by Fourier coefficients."""
    if not windows.at_every_pixel(work.size):
        return _phases_time(work, windows) + spectral_time(*work.by_phase(windows))
    circle = SpectralCorrelation.circle(work.size, windows.kernel, windows.padding, windows.circular)
    frequencies = circle[0] * (circle[1] // 2 + 1)
    products = frequencies * (7 * work.channels**2 + 12 * work.channels * work.outputs)
    products += 7 * work.channels**2 * _border(windows, circle)
    time = 2 * frequencies * work.images * (work.channels + work.outputs) * COEFFICIENT
    return time + OPERATION * 2 * work.images * products + START["spectral"] * _correlations(windows)


def convolution_time(work: Work, windows: Windows) -> float:
    """Return the nanoseconds of the route by convolutions."""
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
    """Return the nanoseconds to sort pixels by phase, twice, to put gradients back and to select moments."""
    phases, inside = work.by_phase(windows)
    entries = work.images * work.channels * prod(work.size)
    return PIXEL * entries + PAIR * (phases.channels * inside.pixels) ** 2


def _sticking_out(windows: Windows) -> Pair:
    if windows.circular:
        return 0, 0
    rows, columns = (max(0, k - 1 - p) for k, p in zip(windows.kernel, windows.padding, strict=True))
    return rows, columns


def _correlations(windows: Windows) -> int:
    """Return the number of correlations: one for the images, two more for strips along borders."""
    return 3 if any(_sticking_out(windows)) else 1


def _border(windows: Windows, size: Pair) -> int:
    """Return the pixels of all strips, times the squares of the factors by which they multiply channels."""
    rows, columns = _sticking_out(windows)
    return rows**2 * size[1] + columns**2 * size[0] + 4 * prod((rows, columns)) ** 2


class Route(NamedTuple):
    """A way to compute the moments of one set of images and their gradients."""

    moments: Callable[..., tuple[Tensor, Tensor]]  # computes the moments
    write_gradients: Callable[..., None]  # writes gradients to given buffers
    time: Callable[[Work, Windows], float]  # predicts the time, in nanoseconds on one core


def fastest_route(x: Tensor, y: Tensor, windows: Windows) -> str:
    """Return the route that should take the least time: "spectral", "convolution" or "patches".

    With K pixels in the kernel, the spectral route takes about 4 C² + 6 C O products a pixel, convolutions
    5 K C² + 3 K C O, which are faster, and patches 2 (C K)² + 3 C K O.

    >>> import torch
    >>> images = torch.empty(100, 32, 32, 32)
    >>> fastest_route(images, images, Windows.of(3)), fastest_route(images, images, Windows.of(1))
    ('convolution', 'patches')
    """
    work = Work.of(x, y)
    times = [route.time(work, windows) for route in ROUTES.values()]
    return list(ROUTES)[times.index(min(times))]  # no key function, which torch.compile cannot read


def _by_lags(kind: type[Correlation], time: Callable[[Work, Windows], float]) -> Route:
    return Route(partial(lags.moments, kind), partial(lags.write_gradients, kind), time)


ROUTES = {
    "spectral": _by_lags(SpectralCorrelation, spectral_time),
    "convolution": _by_lags(DirectCorrelation, convolution_time),
    "patches": Route(patches.moments, patches.write_gradients, patches_time),
}
