"""The three routes to the same moments, and the choice of the fastest for given shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor

from gilib.convolution import costs, patches, phases
from gilib.convolution.borders import Correlation
from gilib.convolution.direct import DirectCorrelation
from gilib.convolution.spectral import SpectralCorrelation
from gilib.convolution.windows import Windows


class Route(NamedTuple):
    """A way to compute the moments of one set of images and their gradients.

    Attributes:
        moments: computes the moments.
        write_gradients: writes gradients to given buffers.
        time: predicts the time, in nanoseconds on one core.
    """

    moments: Callable[..., tuple[Tensor, Tensor]]
    write_gradients: Callable[..., None]
    time: Callable[[costs.Work, Windows], float]


def fastest_route(x: Tensor, y: Tensor, windows: Windows) -> str:
    """Return the route that should take the least time: "spectral", "convolution" or "patches".

    With K pixels in the kernel, the spectral route takes about 4 C² + 6 C O products a pixel, whatever K is.
    Convolutions take 5 K C² + 3 K C O products, which are faster, and patches 2 (C K)² + 3 C K O. So the
    spectral route suits many channels, and patches suit few channels and kernels of one pixel.

    >>> import torch
    >>> images = torch.empty(100, 32, 32, 32)
    >>> fastest_route(images, images, Windows.of(3)), fastest_route(images, images, Windows.of(1))
    ('convolution', 'patches')
    """
    work = costs.Work.of(x, y)
    times = [route.time(work, windows) for route in ROUTES.values()]
    return list(ROUTES)[times.index(min(times))]  # no key function, which torch.compile cannot read


def _by_lags(kind: type[Correlation], time: Callable[[costs.Work, Windows], float]) -> Route:
    return Route(partial(phases.moments, kind), partial(phases.write_gradients, kind), time)


ROUTES = {
    "spectral": _by_lags(SpectralCorrelation, costs.spectral_time),
    "convolution": _by_lags(DirectCorrelation, costs.convolution_time),
    "patches": Route(patches.moments, patches.write_gradients, costs.patches_time),
}
