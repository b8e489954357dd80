"""Two ways to the same moments, and which is the faster for given shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from gilib.convolution import patches, spectral
from gilib.convolution.lags import Correlation
from gilib.convolution.windows import Windows

# Nanoseconds on one core in float32, forward and backward, fitted to times at 4 x 4 to 32 x 32 pixels.
OPERATION = 0.0125  # of a matrix product
PATCH_ENTRY = 2.2  # to cut out and to put back one number
COEFFICIENT = 13.0  # to transform one number: forward, once more in the backward pass, and back
START = 2e6  # of one correlation; borders take three


class Route(NamedTuple):
    """A way to compute the moments of one set of images, and to add their gradients to given buffers."""

    moments: Callable[..., tuple[Tensor, Tensor]]
    add_gradients: Callable[..., None]


ROUTES = {
    "spectral": Route(spectral.moments, spectral.add_gradients),
    "patches": Route(patches.moments, patches.add_gradients),
}


def fastest_route(x: Tensor, y: Tensor, windows: Windows) -> str:
    """The route that should take less time, "spectral" or "patches".

    The spectral route needs about 7 C² + 12 C O operations a pixel whatever the kernel, patches 2 (C K)²: few
    channels, tiny images and kernels of one pixel are left to patches.

    >>> import torch
    >>> images = torch.empty(100, 32, 32, 32)
    >>> fastest_route(images, images, Windows.of(3)), fastest_route(images, images, Windows.of(1))
    ('spectral', 'patches')
    """
    every = windows.at_every_pixel(x.shape[-2:])
    if every and _spectral_time(x, y, windows) < _patches_time(x, y, windows):
        return "spectral"
    return "patches"


def _patches_time(x: Tensor, y: Tensor, windows: Windows) -> float:
    rows, size, outputs = y.shape[-4] * y.shape[-2:].numel(), x.shape[-3] * windows.pixels, y.shape[-3]
    return rows * (OPERATION * 2 * (2 * size**2 + 3 * size * outputs) + PATCH_ENTRY * (size + outputs))


def _spectral_time(x: Tensor, y: Tensor, windows: Windows) -> float:
    images, channels, outputs = x.shape[-4], x.shape[-3], y.shape[-3]
    height, width = Correlation.circle(x.shape[-2:], windows.kernel, windows.padding, windows.circular)
    frequencies = height * (width // 2 + 1)
    products = frequencies * (7 * channels**2 + 12 * channels * outputs)
    time = 2 * frequencies * images * (channels + outputs) * COEFFICIENT + START
    if not windows.circular:
        rows, columns = (max(0, k - 1 - p) for k, p in zip(windows.kernel, windows.padding, strict=True))
        edges = 7 * channels**2 * (rows**2 * width + columns**2 * height + 4 * (rows * columns) ** 2)
        products, time = products + edges, time + 2 * START
    return time + OPERATION * 2 * images * products
