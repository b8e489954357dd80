"""Three ways to the same moments, and which is the fastest for given shapes."""

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
from gilib.convolution.spectral import SpectralCorrelation
from gilib.convolution.windows import Windows

# Nanoseconds on one core in float32, forward and backward, fitted to times at 4 x 4 to 32 x 32 pixels.
OPERATION = 0.0125  # of a product of small matrices
PATCH_ENTRY = 2.2  # to cut out and to put back one number
COEFFICIENT = 13.0  # to transform one number: forward, once more in the backward pass, and back
CONVOLVED = 0.0046  # an operation of a convolution
PIXEL = 4.7  # to pad and weight one number, and to add its gradient
START = {"spectral": 2e6, "convolution": 1e6}  # of one correlation; borders take three


class Route(NamedTuple):
    """A way to compute the moments of one set of images, and to write their gradients to given buffers.

    Attributes:
        moments: the computation.
        write_gradients: its adjoint.
        time: what it should take for images x, y, and windows: nanoseconds on one core.
    """

    moments: Callable[..., tuple[Tensor, Tensor]]
    write_gradients: Callable[..., None]
    time: Callable[[Tensor, Tensor, Windows], float]


def supports(route: str, size: tuple[int, ...], windows: Windows) -> bool:
    """Whether a route can serve windows of images of this size."""
    if route == "patches":
        return True
    wraps_once = route == "spectral" or all(n >= k - 1 for n, k in zip(size, windows.kernel, strict=True))
    return windows.at_every_pixel(size) and (wraps_once or not windows.circular)


def fastest_route(x: Tensor, y: Tensor, windows: Windows) -> str:
    """The route that should take the least time: "spectral", "convolution" or "patches".

    Of products the spectral route needs about 4 C² + 6 C O a pixel, whatever the K pixels of the kernel are;
    convolutions 5 K C² + 3 K C O, but fast ones; patches 2 (C K)² + 3 C K O. Many channels are left to the
    spectral route, few channels and kernels of one pixel to patches.

    >>> images = torch.empty(100, 32, 32, 32)
    >>> fastest_route(images, images, Windows.of(3)), fastest_route(images, images, Windows.of(1))
    ('convolution', 'patches')
    """
    able = [name for name in ROUTES if supports(name, x.shape[-2:], windows)]
    return min(able, key=lambda name: ROUTES[name].time(x, y, windows))


def _patches_time(x: Tensor, y: Tensor, windows: Windows) -> float:
    rows, size, outputs = y.shape[-4] * y.shape[-2:].numel(), x.shape[-3] * windows.pixels, y.shape[-3]
    return rows * (OPERATION * 2 * (2 * size**2 + 3 * size * outputs) + PATCH_ENTRY * (size + outputs))


def _spectral_time(x: Tensor, y: Tensor, windows: Windows) -> float:
    images, channels, outputs = x.shape[-4], x.shape[-3], y.shape[-3]
    height, width = SpectralCorrelation.circle(
        x.shape[-2:], windows.kernel, windows.padding, windows.circular
    )
    frequencies = height * (width // 2 + 1)
    products = frequencies * (7 * channels**2 + 12 * channels * outputs)
    products += 7 * channels**2 * _border(windows, (height, width))
    time = 2 * frequencies * images * (channels + outputs) * COEFFICIENT
    return time + OPERATION * 2 * images * products + START["spectral"] * _correlations(windows)


def _convolution_time(x: Tensor, y: Tensor, windows: Windows) -> float:
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return inf  # convolutions in float64 have no fast library; on a GPU nothing was measured
    images, channels, outputs, pixels = x.shape[-4], x.shape[-3], y.shape[-3], x.shape[-2:].numel()
    down, across = (2 * k - 1 for k in windows.kernel)
    lagged = (windows.kernel[0] + down) * across
    entries = images * pixels * (channels + outputs)
    channels, outputs = (8 * ceil(n / 8) for n in (channels, outputs))  # as many at a time
    products = pixels * (lagged * channels**2 + 3 * windows.pixels * channels * outputs)
    products += lagged * channels**2 * _border(windows, tuple(x.shape[-2:]))
    time = CONVOLVED * 2 * images * products + PIXEL * entries
    return time + START["convolution"] * _correlations(windows)


def _sticking_out(windows: Windows) -> tuple[int, int]:
    if windows.circular:
        return 0, 0
    rows, columns = (max(0, k - 1 - p) for k, p in zip(windows.kernel, windows.padding, strict=True))
    return rows, columns


def _correlations(windows: Windows) -> int:
    """Of the whole images, and of the strips along the borders where windows stick out."""
    return 3 if any(_sticking_out(windows)) else 1


def _border(windows: Windows, size: tuple[int, ...]) -> int:
    """The pixels of all strips, times the squares of the factors by which they multiply channels."""
    rows, columns = _sticking_out(windows)
    return rows**2 * size[1] + columns**2 * size[0] + 4 * prod((rows, columns)) ** 2


def _by_lags(kind: type[Correlation], time: Callable[[Tensor, Tensor, Windows], float]) -> Route:
    return Route(partial(lags.moments, kind), partial(lags.write_gradients, kind), time)


ROUTES = {
    "spectral": _by_lags(SpectralCorrelation, _spectral_time),
    "convolution": _by_lags(DirectCorrelation, _convolution_time),
    "patches": Route(patches.moments, patches.write_gradients, _patches_time),
}
