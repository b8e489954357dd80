"""One training step of ResNet-8 with global inducing images, by three ways to its convolutions' statistics.

A step draws all 8 layers once, evaluates the network on as many data images as there are inducing images, and
takes the gradient of the bound and a step of Adam. Network, parameters and noise are the same for all ways;
exchanged is only where layers take their moments from: gilib, the convolution that takes images for its
weights (Ober & Aitchison, 2021, App. C), or explicit patches. Bounds and gradients are compared first. Times
are interleaved medians: the ratio is what counts. CPU time, of all threads, hardly depends on what else the
machine does. Memory is the peak beyond what is held between steps.

    python benchmarks/resnet_step.py [--threads 2] [--repeats 9] [--images 20 100] [--prior ScalePrior]
    python benchmarks/resnet_step.py --device cuda [--images 500] [--tf32] [--record]
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import mean, median, quantiles
from typing import NamedTuple
from unittest import mock

import torch
from autocorrelation import by_convolution, by_patches
from measures import clock, minor_faults, peak_memory, traffic, wait
from recording import Row, parser, running
from torch import Tensor
from torch.nn.functional import one_hot
from torch.profiler import ProfilerActivity, profile

import gilib
import gilib.statistics as gilib_statistics
from gilib.convolution import Windows, fastest_route, window_moments

SIZE, CHANNELS, CLASSES, NUM_DATA = 32, 32, 10, 50_000
WARM_UP = 2  # steps
PRIORS = {"ScalePrior": gilib.ScalePrior(), "SpatialIWPrior": gilib.SpatialIWPrior()}
PARTS = {
    "statistics": ("_Moments", "_MomentsBackward"),
    "factorisation and sampling": ("_SampleFromPrecision", "_SampleFromPrecisionBackward"),
    "convolutions": ("aten::convolution", "ConvolutionBackward0"),
}
Moments = Callable[..., tuple[Tensor, Tensor]]
Step = Callable[[], None]


def plainly(method: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Moments:
    """A method for one set of images `[M, C, H, W]` as layers ask for it: `[..., M, C, H, W]`, weighted."""

    def moments(x: Tensor, y: Tensor, windows: Windows, precision: Tensor) -> tuple[Tensor, Tensor]:
        assert windows == Windows.of(3), "the baselines know circular windows of 3 x 3 pixels only"
        root = precision.sqrt()[:, None, None, None]
        sets = [method(root * images, root * y) for images in x.reshape(-1, *x.shape[-4:])]
        gram, cross = (torch.stack(values) for values in zip(*sets, strict=True))
        return gram.reshape(*x.shape[:-4], *gram.shape[1:]), cross.reshape(*x.shape[:-4], *cross.shape[1:])

    return moments


def route(x: Tensor, y: Tensor, windows: Windows) -> str:
    """The route that gilib takes in float32."""
    return fastest_route(*(torch.empty_like(part, dtype=torch.float32) for part in (x, y)), windows)


def by_gilib(x: Tensor, y: Tensor, windows: Windows, precision: Tensor) -> tuple[Tensor, Tensor]:
    """The routes that are timed, also where they are checked, in float64."""
    return window_moments(x, y, windows, precision, route(x, y, windows))


WAYS: dict[str, Moments] = {
    "convolution": plainly(by_convolution),
    "patches": plainly(lambda x, y: by_patches(x, y, "circular")),
    "gilib": by_gilib,
}


@contextmanager
def moments_by(way: str) -> Iterator[None]:
    """Within it layers take the moments of their inducing images from one of WAYS."""
    with mock.patch.object(gilib_statistics, "window_moments", WAYS[way]):
        yield


class Problem(NamedTuple):
    """ResNet-8 and a minibatch: images x `[B, 3, H, W]`, labels y `[B]`."""

    net: gilib.Network
    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, prior: str, count: int, size: int, dtype: torch.dtype, device: torch.device) -> Problem:
        """`count` inducing and as many data images of size x size pixels, all standard normal."""
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(2 * count, 3, size, size, generator=generator).to(dtype)
        labels = torch.randint(CLASSES, (2 * count,), generator=generator)
        net = gilib.models.resnet8(
            (3, size, size),
            CLASSES,
            channels=CHANNELS,
            posterior=gilib.GlobalInducing(),
            prior=PRIORS[prior],
            inducing_points=images[:count],
            pseudo_outputs=one_hot(labels[:count], CLASSES).to(dtype),
            generator=generator,
        )
        return cls(net.to(device), images[count:].to(device), labels[count:].to(device))

    def generator(self) -> torch.Generator:
        """A source of noise on the network's device."""
        return torch.Generator(self.x.device).manual_seed(1)

    def bound(self, noise: Tensor) -> Tensor:
        """The evidence lower bound per data point (nats)."""
        draw = self.net.draw(noise=noise)
        return gilib.elbo(draw, gilib.Categorical(), self.x, self.y, num_data=NUM_DATA, per_point=True)

    def stepper(self) -> Step:
        """A function that makes one training step: noise, bound, gradient, Adam."""
        optimiser = torch.optim.Adam(self.net.parameters(), lr=1e-4)
        generator = self.generator()

        def step() -> None:
            optimiser.zero_grad()
            (-self.bound(self.net.base_noise(1, generator))).backward()
            optimiser.step()
            wait(self.x.device)

        return step


def check(prior: str, device: torch.device, count: int = 8, size: int = 16) -> float:
    """The largest relative difference of bounds and gradients between the ways, in float64: below 1e-11."""
    problem, found = Problem.of(prior, count, size, torch.float64, device), {}
    for way in WAYS:
        with moments_by(way):
            bound = problem.bound(problem.net.base_noise(1, problem.generator()))
        found[way] = (bound.detach(), *torch.autograd.grad(bound, list(problem.net.parameters())))
    errors = []
    for way, values in found.items():
        for ours, wanted in zip(values, found["patches"], strict=True):
            errors.append(float((ours - wanted).norm() / wanted.norm()))
            assert errors[-1] < 1e-11, f"{way}, {prior}: relative difference {errors[-1]:.1e}"
    return max(errors)


def timed(step: Step, repeats: int) -> dict[str, tuple[list[float], float, float]]:
    """For every way quartiles of a step's milliseconds, its CPU time and minor faults; interleaved."""
    times: dict[str, tuple[list[float], list[float], list[float]]] = {way: ([], [], []) for way in WAYS}
    for repeat in range(repeats + WARM_UP):
        for way, found in times.items():
            with moments_by(way):
                started = time.perf_counter(), time.process_time(), minor_faults()
                step()
                ended = time.perf_counter(), time.process_time(), minor_faults()
            if repeat >= WARM_UP:
                for values, first, last, unit in zip(found, started, ended, (1e3, 1e3, 1), strict=True):
                    values.append(unit * (last - first))
    return {
        way: (quantiles(wall, n=4, method="inclusive"), median(cpu), mean(faults))
        for way, (wall, cpu, faults) in times.items()
    }


def parts(step: Step, device: torch.device) -> dict[str, float]:
    """Milliseconds of one profiled step by part, forward and backward; "rest" is what remains."""
    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda]) as trace:
        started = time.perf_counter()
        step()
        total = 1e3 * (time.perf_counter() - started)
    spent = {
        event.key: (event.device_time_total if cuda else event.cpu_time_total) / 1e3
        for event in trace.key_averages()
    }
    found = {part: sum(spent.get(name, 0.0) for name in names) for part, names in PARTS.items()}
    return found | {"rest": total - sum(found.values())}


def operations(problem: Problem) -> dict[str, float]:
    """GFLOP that a step needs by part, forward and backward.

    Statistics: as gilib's route has them. Factorisation: 2/3 I³ for the inverse Cholesky factor, 4 I³ for the
    gradient of the precision, six products with O columns. Convolutions: three products for each inducing and
    data image; the first layer leaves out the gradient of the data.
    """
    layers = [layer for layer in problem.net.modules() if isinstance(layer, gilib.Conv2d | gilib.Linear)]
    count, found = len(problem.x), dict.fromkeys(PARTS, 0.0)
    for layer in layers:
        size, outputs = layer.fan_in, layer.outputs
        found["factorisation and sampling"] += 14 / 3 * size**3 + 12 * size**2 * outputs
        if isinstance(layer, gilib.Conv2d):
            found["statistics"] += count * statistics_operations(layer)
            product = 2 * size * outputs * layer.weights.pseudo.outputs.shape[-2:].numel()
            found["convolutions"] += count * product * (5 if layer is layers[0] else 6)
    return {part: value / 1e9 for part, value in found.items()}


def statistics_operations(layer: gilib.Conv2d) -> float:
    """Floating-point operations for each inducing image."""
    channels, size, outputs = layer.in_channels, layer.fan_in, layer.outputs
    pixels = layer.weights.pseudo.outputs.shape[-2:].numel()
    cross = 3 * size * outputs
    if (way := layer_route(layer)) == "patches":
        return pixels * 2 * (2 * size**2 + cross)
    if way == "convolution":
        height, (down, across) = layer.windows.kernel[0], (2 * k - 1 for k in layer.windows.kernel)
        return pixels * 2 * ((height + down) * across * channels**2 + cross)
    products = 7 * channels**2 + 12 * channels * outputs
    return pixels * (products + 3 * (channels + outputs) * 2.5 * math.log2(pixels))


def layer_route(layer: gilib.Conv2d) -> str:
    """The route that gilib takes to the statistics of a layer."""
    y, site = layer.weights.pseudo.outputs, layer.weights.site
    return route(y.new_empty(len(y), site.channels, *site.image_size), y, site.windows)


def row(prior: str, count: int, device: torch.device, repeats: int) -> Row:
    """Time one network all ways; operations, memory and parts of a step of gilib's."""
    problem = Problem.of(prior, count, SIZE, torch.float32, device)
    step = problem.stepper()
    times, memory = timed(step, repeats), {}
    for way in WAYS:
        with moments_by(way):
            memory[way] = peak_memory(step, device)[0] / 1e6
    work = operations(problem)
    alone = clock(device) is time.process_time
    return Row(
        {"prior": prior, "images": count, "inducing": count, "size": SIZE, "channels": CHANNELS},
        "convolution",
        {way: cpu if alone else wall[1] for way, (wall, cpu, _) in times.items()},
        {"gilib": sum(work.values())},
        {"gilib": traffic(problem.net, problem.x.numel())},
        {way: faults for way, (_, _, faults) in times.items()},
        {
            "quartiles": {way: wall for way, (wall, _, _) in times.items()},
            "processor ms": {way: cpu for way, (_, cpu, _) in times.items()},
            "memory": memory,
            "gflop": work,
            "parts": parts(step, device),
        },
    )


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, record."""
    known = parser(__doc__, 9)
    known.add_argument("--device", default="cpu")
    known.add_argument("--images", type=int, nargs="+", help="inducing images, and as many data images")
    known.add_argument("--prior", nargs="+", choices=PRIORS, default=list(PRIORS))
    known.add_argument("--tf32", action="store_true", help="rounded products on a GPU, in all ways")
    options = known.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
    with running("resnet_step", options) as run:
        counts, rows = options.images or ([500] if run.device.type == "cuda" else [20, 100]), []
        for prior in options.prior:
            check(prior, run.device)
            rows += [row(prior, count, run.device, options.repeats) for count in counts]
        run.finish(rows)


if __name__ == "__main__":
    main()
