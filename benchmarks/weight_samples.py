"""A convolution with several weight samples, forward and backward, by four ways.

One convolution per sample (one in all for shared images), as `gilib.layers.conv.Conv2dFunction`; a grouped
convolution; `torch.vmap`; patches and batched products. Results and gradients are compared before anything is
timed. Times are interleaved, medians, in one process: the ratio is what counts.

    python benchmarks/weight_samples.py [--threads 2] [--repeats 9] [--channels 32] [--images 20]
        [--record]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial

import torch
from measures import spent
from recording import Row, parser, running
from torch import Tensor
from torch.nn.functional import conv2d, unfold

from gilib.convolution import Windows
from gilib.layers.conv import Conv2dFunction

KERNEL, PADDING = 3, 1
SAMPLES, SIZES = (2, 10), (32, 8)
WINDOWS = Windows.of(KERNEL, padding=PADDING, boundary="zero")
Way = Callable[[Tensor, Tensor], Tensor]


def ours(x: Tensor, kernels: Tensor) -> Tensor:
    """Images `[N, C, n, n]` or `[S, N, C, n, n]`, kernels `[S, O, C, k, k]`, to `[S, N, O, n, n]`."""
    weights = kernels.flatten(2).mT[:, None]  # [S, R, I, O]
    images = x if x.dim() == 4 else x[:, None]
    return Conv2dFunction(weights, WINDOWS, tuple(x.shape[-3:]))(images)[:, 0]


def grouped(x: Tensor, kernels: Tensor) -> Tensor:
    """Samples as groups of channels."""
    samples, outputs = kernels.shape[:2]
    images = x.expand(samples, *x.shape[-4:]).transpose(0, 1).flatten(1, 2)  # [N, S C, n, n]
    found = conv2d(images, kernels.flatten(0, 1), padding=PADDING, groups=samples)
    return found.unflatten(1, (samples, outputs)).transpose(0, 1)


def vmapped(x: Tensor, kernels: Tensor) -> Tensor:
    """What PyTorch makes of a map over samples."""
    shared = None if x.dim() == 4 else 0
    return torch.vmap(lambda images, kernel: conv2d(images, kernel, padding=PADDING), (shared, 0))(x, kernels)


def patched(x: Tensor, kernels: Tensor) -> Tensor:
    """Patches, and batched products with the weights."""
    windows = unfold(x.flatten(0, -4), KERNEL, padding=PADDING).unflatten(0, x.shape[:-3])
    found = kernels.flatten(2)[:, None] @ windows  # [S, N, O, n n]
    return found.unflatten(-1, x.shape[-2:])


WAYS: dict[str, Way] = {"one by one": ours, "grouped": grouped, "vmap": vmapped, "patches": patched}


def problem(
    samples: int, size: int, shared: bool, count: int, channels: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Images, the same for all samples or not, and kernels."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, channels, size, size) if shared else (samples, count, channels, size, size)
    x = torch.randn(shape, generator=generator, dtype=dtype)
    kernels = torch.randn(samples, channels, channels, KERNEL, KERNEL, generator=generator, dtype=dtype)
    return x.requires_grad_(), kernels.requires_grad_()


def step(way: Way, x: Tensor, kernels: Tensor) -> tuple[Tensor, ...]:
    """The outputs, and the gradients of their squares' sum."""
    found = way(x, kernels)
    return (found.detach(), *torch.autograd.grad(found.square().sum(), (x, kernels)))


def check() -> None:
    """All ways agree to 1e-11 in float64."""
    for shared in (True, False):
        x, kernels = problem(3, 6, shared, 4, 5, torch.float64)
        wanted = step(ours, x, kernels)
        for name, way in WAYS.items():
            for found, expected in zip(step(way, x, kernels), wanted, strict=True):
                error = float((found - expected).norm() / expected.norm())
                assert error < 1e-11, f"{name}: relative difference {error:.1e}"


def row(shared: bool, size: int, samples: int, options: argparse.Namespace) -> Row:
    """Time one shape; floors: three convolutions, two reads and a write of images, outputs and kernels."""
    x, kernels = problem(samples, size, shared, options.images, options.channels, torch.float32)
    found = spent({name: partial(step, way, x, kernels) for name, way in WAYS.items()}, options.repeats, 1)
    outputs = samples * options.images * options.channels * size**2
    case = {"images": "shared" if shared else "own", "size": size, "samples": samples}
    return Row(
        {**case, "count": options.images, "channels": options.channels},
        "one by one",
        {name: each.ms for name, each in found.items()},
        dict.fromkeys(WAYS, 3 * 2 * outputs * options.channels * KERNEL**2 / 1e9),
        dict.fromkeys(WAYS, 3 * 4e-6 * (x.numel() + outputs + kernels.numel())),
        {name: each.faults for name, each in found.items()},
    )


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, record."""
    known = parser(__doc__, 9)
    known.add_argument("--images", type=int, default=20)
    known.add_argument("--channels", type=int, default=32)
    known.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options = known.parse_args(arguments)
    with running("weight_samples", options) as run:
        check()
        shapes = itertools.product((True, False), options.sizes, SAMPLES)
        run.finish([row(*shape, options) for shape in shapes])


if __name__ == "__main__":
    main()
