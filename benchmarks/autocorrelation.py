"""Statistics of a convolution, forward and backward, against the two ways of Ober & Aitchison (2021), App. C.

The baselines are written plainly in PyTorch: a convolution that takes the images for its weights (circular
boundaries only), and explicit patches. Results and gradients are compared before anything is timed. Times are
interleaved, medians, in one process: the ratio is what counts. Memory is the peak beyond inputs and results
(values and gradients), in units of the inputs.

    python benchmarks/autocorrelation.py [--threads 2] [--repeats 7] [--channels 32] [--images 100]
        [--record]
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable
from functools import partial

import torch
from measures import clock, minor_faults, peak_memory
from recording import Row, parser, running
from torch import Tensor
from torch.nn.functional import conv2d, pad

from gilib.convolution import Windows, autocorrelation, fastest_route

SIZES = (32, 16, 8, 4)
KERNEL = 3
Moments = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def by_convolution(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Circular moments with images as weights: channels for the batch, images for the channels."""
    channels, far, near = x.shape[1], KERNEL - 1, KERNEL // 2
    columns, targets = x.transpose(0, 1), y.transpose(0, 1)
    lags = conv2d(pad(columns, (far,) * 4, mode="circular"), columns)  # [C', C, 2k-1, 2k-1]
    cross = conv2d(pad(columns, (near,) * 4, mode="circular"), targets)  # [C, O, k, k]
    seen = lags.unfold(2, KERNEL, 1).unfold(3, KERNEL, 1).flip(2, 3)  # [C', C, δ, δ, δ', δ']
    gram = seen.permute(1, 2, 3, 0, 4, 5).reshape((channels * KERNEL**2,) * 2)
    return gram, cross.permute(0, 2, 3, 1).reshape(len(gram), -1)


def by_patches(x: Tensor, y: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """Moments from explicit patches, all images at once."""
    padded = pad(x, (KERNEL // 2,) * 4, mode=mode)
    windows = padded.unfold(2, KERNEL, 1).unfold(3, KERNEL, 1)  # [B, C, H, W, k, k]
    patches = windows.permute(0, 2, 3, 1, 4, 5).reshape(-1, x.shape[1] * KERNEL**2)
    return patches.mT @ patches, patches.mT @ y.movedim(1, -1).reshape(len(patches), -1)


METHODS: dict[str, Moments] = {
    "convolution": by_convolution,
    "patches": lambda x, y: by_patches(x, y, "circular"),
    "patches, zeros": lambda x, y: by_patches(x, y, "constant"),
    "gilib": lambda x, y: autocorrelation(x, y, KERNEL),
    "gilib, zeros": lambda x, y: autocorrelation(x, y, KERNEL, boundary="zero"),
}
BY_ROUTE: dict[str, Moments] = {
    f"gilib, {route}{tail}": partial(autocorrelation, kernel_size=KERNEL, boundary=boundary, route=route)
    for route in ("spectral", "convolution", "patches")
    for boundary, tail in (("circular", ""), ("zero", ", zeros"))
}


def reference(name: str) -> str:
    """The patches with which a method is compared."""
    return "patches, zeros" if "zeros" in name else "patches"


def images(size: int, count: int, channels: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Images x and pseudo-outputs y with as many channels, `[count, channels, size, size]`."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(count, channels, size, size, generator=generator).to(dtype) for _ in range(2))
    return x.requires_grad_(), y.requires_grad_()


def step(method: Moments, x: Tensor, y: Tensor, probes: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Both moments and both gradients."""
    values = method(x, y)
    return (*(value.detach() for value in values), *torch.autograd.grad(values, (x, y), probes))


def probes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Upstream gradients of the two moments."""
    generator = torch.Generator().manual_seed(1)
    size = x.shape[1] * KERNEL**2
    gram, cross = (torch.randn(size, columns, generator=generator) for columns in (size, y.shape[1]))
    return gram.to(x), cross.to(x)


def check(size: int, count: int = 5, channels: int = 4) -> None:
    """Values and gradients of all methods, and of all routes of gilib, agree to 1e-11 in float64."""
    x, y = images(size, count, channels, torch.float64)
    found = {name: step(method, x, y, probes(x, y)) for name, method in (METHODS | BY_ROUTE).items()}
    for name, values in found.items():
        for ours, wanted in zip(values, found[reference(name)], strict=True):
            error = float((ours - wanted).norm() / wanted.norm())
            assert error < 1e-11, f"{name} at {size} x {size}: relative difference {error:.1e}"


def extra_memory(method: Moments, x: Tensor, y: Tensor) -> float:
    """Peak memory of a step beyond inputs and results, in units of the inputs."""
    upstream = probes(x, y)
    peak, results = peak_memory(lambda: step(method, x, y, upstream))
    return (peak - sum(part.nbytes for part in results)) / (x.nbytes + y.nbytes)


def measure(size: int, count: int, channels: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds and mean minor faults of a step by every method, in a new order each time.

    Each timed step follows another of its kind: after patches, caches and memory are another method's.
    """
    x, y = images(size, count, channels, torch.float32)
    upstream = probes(x, y)
    times: dict[str, list[float]] = {name: [] for name in METHODS}
    faults: dict[str, list[int]] = {name: [] for name in METHODS}
    order, shuffled, now = list(METHODS), random.Random(0), clock()
    for _ in range(repeats):
        shuffled.shuffle(order)
        for name in order:
            step(METHODS[name], x, y, upstream)
            started, before = now(), minor_faults()
            step(METHODS[name], x, y, upstream)
            times[name].append(1e3 * (now() - started))
            faults[name].append(minor_faults() - before)
    return {name: (statistics.median(times[name]), statistics.mean(faults[name])) for name in METHODS}


def floor(size: int, count: int, channels: int) -> float:
    """GFLOP of the spectral route: products of coefficients, and Fourier transforms.

    19 real products of [C, B] with [B, C] at each of S²/2 complex frequencies, and six real transforms (x and
    y, again in the backward pass, and two back) of 2.5 S² log2 S² operations for each image and channel.
    """
    products = 19 * 2 * count * channels**2 * size**2 / 2
    return (products + 6 * count * channels * 2.5 * size**2 * 2 * math.log2(size)) / 1e9


def row(size: int, options: argparse.Namespace) -> Row:
    """Check and time one size of images; the floor of memory: inputs twice read, their gradients written."""
    check(size)
    measured = measure(size, options.images, options.channels, options.repeats)
    x, y = images(size, options.images, options.channels, torch.float32)
    routes = {
        name: fastest_route(x, y, Windows.of(KERNEL, boundary="zero" if "zeros" in name else "circular"))
        for name in METHODS
        if "gilib" in name
    }
    return Row(
        {"size": size, "images": options.images, "channels": options.channels},
        "convolution",
        {name: milliseconds for name, (milliseconds, _) in measured.items()},
        dict.fromkeys(METHODS, floor(size, options.images, options.channels)),
        dict.fromkeys(METHODS, 3e-6 * (x.nbytes + y.nbytes)),
        {name: faults for name, (_, faults) in measured.items()},
        {"memory": {name: extra_memory(METHODS[name], x, y) for name in METHODS}, "route": routes},
    )


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, record."""
    known = parser(__doc__, 7)
    known.add_argument("--images", type=int, default=100)
    known.add_argument("--channels", type=int, default=32)
    known.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options = known.parse_args(arguments)
    with running("autocorrelation", options) as run:
        run.finish([row(size, options) for size in options.sizes])


if __name__ == "__main__":
    main()
