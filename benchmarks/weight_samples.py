"""A convolution with several weight samples, forward and backward, by four ways.

One convolution per sample (one in all for shared images), as `gilib.layers.conv.Conv2dFunction`; a grouped
convolution; `torch.vmap`; patches and batched products. Results and gradients are compared before anything is
timed. Times are interleaved, medians, in one process: the ratio is what counts.

    python benchmarks/weight_samples.py [--threads 2] [--repeats 9] [--channels 32] [--images 20]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
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


def milliseconds(x: Tensor, kernels: Tensor, repeats: int) -> dict[str, float]:
    """Median time of a step by every way, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for repeat in range(repeats + 1):
        for name, way in WAYS.items():
            started = time.perf_counter()
            step(way, x, kernels)
            if repeat:
                times[name].append(1e3 * (time.perf_counter() - started))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Check, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--channels", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    check()
    print(f"torch {torch.__version__}, {options.threads} threads, {options.images} images of each sample")
    print(f"{'':28}" + "".join(f"{name:>12}" for name in WAYS) + "   ms, and / one by one")
    for shared in (True, False):
        for size in SIZES:
            for samples in SAMPLES:
                x, kernels = problem(samples, size, shared, options.images, options.channels, torch.float32)
                times = milliseconds(x, kernels, options.repeats)
                label = f"{'shared' if shared else 'own':7}{size:3} x {size}, {samples:2} samples"
                ratios = "".join(f"{value / times['one by one']:6.2f}" for value in times.values())
                print(f"{label:28}" + "".join(f"{value:12.1f}" for value in times.values()) + ratios)


if __name__ == "__main__":
    main()
