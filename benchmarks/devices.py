"""A training step on this processor and on a GPU, asked for it call by call or replaying a recording.

Every way is `gilib.fit`, everything included: on one thread; on all threads of the processor; on the GPU; on
each of them replayed (`Speed(replay=True)`), as a tape or as a CUDA graph; and on the GPU with the data's
pass in TF32, which BALI refuses. Times are means of steps in a row, one way after the other; how many is
recorded, since a processor stops after two seconds. Of the device that was asked for there are the operations
that no arrangement avoids, too. Without a GPU there is the processor alone.

    python benchmarks/devices.py [--threads 16] [--device cuda] [--only gi resnet8] [--repeats 40] [--record]
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import bali
import floors
import growth
import resnet_step
import torch
from measures import CPU, Watch
from recording import Row, parser, running
from torch import Tensor

import gilib
from gilib.training import Adam, Bali, Speed

WAYS: dict[str, tuple[str, Speed]] = {
    "one thread": ("cpu", Speed(replay=False)),
    "one thread, replayed": ("cpu", Speed(replay=True)),
    "processor": ("cpu", Speed(replay=False)),
    "processor, replayed": ("cpu", Speed(replay=True)),
    "called": ("cuda", Speed()),
    "replayed": ("cuda", Speed(replay=True)),
    "called, TF32": ("cuda", Speed("tf32")),
    "replayed, TF32": ("cuda", Speed("tf32", replay=True)),
}
Model = tuple[gilib.Network, gilib.likelihoods.Likelihood, Tensor, Tensor]
WIDE = {
    "networks": growth.Size(5, 10_000, 500, 500, 2),
    "processes": growth.Size(5, 5000, 300, 8, 2),
}


SMALL = {"networks": growth.Size(5, 277, 50, 50, 1), "processes": growth.Size(5, 277, 50, 5, 1)}


class Case(NamedTuple):
    """What is trained, and how.

    Attributes:
        build: makes network, likelihood, inputs and targets, on the processor.
        gflop: of a step, see `floors`.
        settings: of `gilib.fit`.
    """

    build: Callable[[], Model]
    gflop: float
    settings: Mapping[str, Any]


def sized(method: str, size: growth.Size) -> Case:
    """One of the models whose growth is measured."""

    def build() -> Model:
        x, y, _ = growth.data(size)
        return growth.network(method, size), gilib.Gaussian(0.1, learn=True), x, y

    rule, samples = (Bali(), 1) if method == "bali" else (Adam(1e-3), size.samples)
    return Case(build, growth.floor(method, size), {"rule": rule, "num_samples": samples})


def replicated(replicas: int) -> Case:
    """The networks of the UCI tables, a precision for each output, on 277 points, in one program."""
    widths, points, inducing, samples = (6, 50, 50, 1), 277, 100, 10

    def build() -> Model:
        x = torch.randn(points, widths[0], generator=torch.Generator().manual_seed(0))
        posterior = gilib.GlobalInducing(precision="per_output")
        settings = {"posterior": posterior, "inducing_points": x[:inducing], "replicas": (replicas,)}
        net = gilib.models.mlp(widths[0], widths[1:-1], 1, **settings)
        return net, gilib.Gaussian(0.1, learn=True, replicas=(replicas,)), x, x.sum(-1, keepdim=True).sin()

    one = floors.inducing(widths, points, inducing, samples, per_output=True)
    seeds = {"seed": list(range(replicas)), "on_divergence": "freeze"}
    return Case(build, replicas * one, {"rule": Adam(1e-3), "num_samples": samples, **seeds})


def of_images(count: int) -> Case:
    """ResNet-8 with so many inducing and data images."""
    problem = resnet_step.Problem.of("ScalePrior", count, resnet_step.SIZE, torch.float32, CPU)
    work = sum(resnet_step.operations(problem).values())
    model = problem.net, gilib.Categorical(), problem.x, problem.y
    return Case(lambda: copy.deepcopy(model), work, {"rule": Adam(1e-4), "num_samples": 1})


def of_labels() -> Case:
    """BALI on ten classes: 784 inputs, two layers of 200 units, 1000 points a step."""
    shape = bali.MNIST

    def build() -> Model:
        return bali.network(shape), bali.likelihood_of(shape), *bali.data(shape)

    settings = {"rule": Bali(), "num_samples": 1, "batch_size": shape.batch}
    return Case(build, bali.operations(shape)["bali"], settings)


def _sized(family: str, sizes: Mapping[str, growth.Size], suffix: str) -> dict[str, Callable[[], Case]]:
    methods = growth.METHODS[family]
    return {f"{name}{suffix}": functools.partial(sized, name, sizes[family]) for name in methods}


CASES: dict[str, Callable[[], Case]] = {
    **_sized("networks", SMALL, ", small"),
    **_sized("processes", SMALL, ", small"),
    **_sized("networks", growth.BASE, ""),
    **_sized("processes", growth.BASE, ""),
    **_sized("networks", WIDE, ", large"),
    **_sized("processes", WIDE, ", large"),
    "1 replica": functools.partial(replicated, 1),
    "20 replicas": functools.partial(replicated, 20),
    "bali, images": of_labels,
    "resnet8": functools.partial(of_images, 500),
}
del CASES["gi_outputs, large"]  # one step takes minutes on a processor


def watched(case: Case, device: torch.device, speed: Speed, repeats: int, threads: int) -> Watch:
    """What its steps take."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = [part.to(device) for part in case.build()]
        watch = Watch(device, repeats, speed.replay)
        gilib.fit(*model, speed=speed, **watch.settings, **case.settings)
    finally:
        torch.set_num_threads(before)
    return watch


def row(name: str, device: torch.device, repeats: int) -> Row:
    """Time one case in all ways that it can go."""
    case, seen, least, all_threads = CASES[name](), {}, {}, torch.get_num_threads()
    for way, (where, speed) in WAYS.items():
        alone = way.startswith("one thread")
        threads = 1 if alone else all_threads
        able = speed.arithmetic == "full" or not isinstance(case.settings["rule"], Bali)
        if able and where in ("cpu", device.type) and not (alone and all_threads == 1):
            seen[way] = watched(case, torch.device(where), speed, repeats, threads)
            rated = speed.arithmetic == "full" and threads == all_threads  # the rate of products is known
            if where == device.type and rated:
                least[way] = case.gflop
    times = {way: watch.ms for way, watch in seen.items()}
    counts = {way: watch.timed for way, watch in seen.items()}
    return Row({"model": name}, "processor", times, least, more={"steps timed": counts})


def main(arguments: list[str] | None = None) -> None:
    """Time, print, record."""
    known = parser(__doc__, 40)
    known.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    known.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    options = known.parse_args(arguments)
    with running("devices", options) as run:
        run.finish([row(name, run.device, options.repeats) for name in options.only])


if __name__ == "__main__":
    main()
