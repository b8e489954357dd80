"""How a training step grows: with points N, inducing points M, width and depth.

Two families. Networks: factorised weights, global inducing points with one precision for all outputs of a
layer and with one for each, layerwise inference (BALI). Deep Gaussian processes: doubly stochastic, global
inducing points, stripes and arrow. Each curve varies one number and leaves the others where `BASE` has them;
all that a curve compares takes turns. Beside the times the operations that no arrangement avoids.

    python benchmarks/growth.py [--threads 1] [--repeats 7] [--curves points width] [--largest 3] [--record]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import bali
import floors
import torch
from measures import Spent, Step, spent, traffic
from recording import Row, parser, running
from torch import Tensor, nn

import gilib
from experiments.lindinger2020.runtime import RuntimeConfig, work
from gilib.structured import StripesAndArrow

INPUTS = 8


class Size(NamedTuple):
    """Of a step: draws, points, inducing points, units (or processes) of a hidden layer, hidden layers."""

    samples: int
    points: int
    inducing: int
    width: int
    depth: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Of inputs, hidden layers and the output."""
        return (INPUTS, *(self.width,) * self.depth, 1)


BASE = {"networks": Size(5, 1000, 100, 64, 2), "processes": Size(5, 500, 100, 5, 2)}
CURVES = {
    "networks": {
        "points": (250, 500, 1000, 2000, 4000),
        "inducing": (25, 50, 100, 200, 400),
        "width": (16, 32, 64, 128),
        "depth": (1, 2, 4, 8),
    },
    "processes": {
        "points": (125, 250, 500, 1000, 2000),
        "inducing": (25, 50, 100, 200),
        "width": (1, 2, 4, 8),
        "depth": (1, 2, 4, 8),
    },
}
METHODS = {"networks": ("fac", "gi", "gi_outputs", "bali"), "processes": ("dsvi", "dgp_gi", "star")}


def data(size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and where inducing points start."""
    generator = torch.Generator().manual_seed(0)
    x, u = (torch.randn(n, INPUTS, generator=generator) for n in (size.points, size.inducing))
    return x, torch.sin(x.sum(-1, keepdim=True)), u


def network(method: str, size: Size) -> gilib.Network:
    """The model of a method."""
    _, _, u = data(size)
    generator, hidden = torch.Generator().manual_seed(1), (size.width,) * size.depth
    if method in ("dsvi", "dgp_gi"):
        posterior = gilib.FreeGaussian() if method == "dsvi" else gilib.GlobalInducing()
        settings = {"width": size.width, "posterior": posterior, "inducing_points": u}
        return gilib.models.deep_gp(INPUTS, 1, size.depth + 1, **settings)
    if method == "star":
        settings = {"width": size.width, "family": StripesAndArrow(), "inducing_points": u}
        return gilib.models.structured_gp(INPUTS, 1, size.depth + 1, **settings)
    posteriors = {
        "fac": gilib.Factorised(),
        "gi": gilib.GlobalInducing(),
        "gi_outputs": gilib.GlobalInducing(precision="per_output"),
        "bali": gilib.posteriors.Conjugate(),
    }
    points = {"inducing_points": u} if method.startswith("gi") else {}
    return gilib.models.mlp(INPUTS, hidden, 1, posterior=posteriors[method], generator=generator, **points)


def stepper(method: str, size: Size) -> tuple[Step, nn.Module]:
    """A function that makes one step of Adam on all points, and the model."""
    x, y, _ = data(size)
    net, generator = network(method, size), torch.Generator().manual_seed(2)
    likelihood = gilib.Gaussian(0.1, learn=True)
    optimiser = torch.optim.Adam([*net.parameters(), *likelihood.parameters()], lr=1e-3)

    def drawn() -> gilib.draws.Drawn:
        if method in ("dsvi", "dgp_gi", "star"):
            return net.estimate(size.samples, size.points, generator=generator)
        return net.draw(size.samples, generator=generator)

    def step() -> None:
        optimiser.zero_grad()
        (-gilib.elbo(drawn(), likelihood, x, y, num_data=size.points, per_point=True)).backward()
        optimiser.step()

    return step, net


def floor(method: str, size: Size) -> float:
    """GFLOP of a step."""
    processes = (*(size.width,) * size.depth, 1)
    shape = size.points, size.inducing, size.samples
    config = RuntimeConfig("", size.depth + 1, size.width, size.inducing, size.points, size.samples)
    rules: dict[str, Callable[[], float]] = {
        "fac": lambda: floors.evaluation(size.widths, size.points, size.samples),
        "gi": lambda: floors.inducing(size.widths, *shape, per_output=False),
        "gi_outputs": lambda: floors.inducing(size.widths, *shape, per_output=True),
        "bali": lambda: bali.operations(bali.Shape(size.widths, size.points, size.points))["bali"],
        "dsvi": lambda: floors.stochastic(processes, *shape),
        "dgp_gi": lambda: floors.processes(processes, *shape),
        "star": lambda: work("star", config) / 1e9,
    }
    return rules[method]()


def layerwise(size: Size, repeats: int) -> Spent:
    """What a step of layerwise inference takes: that of `gilib.fit`."""
    shape = bali.Shape(size.widths, size.points, size.points)
    times, faults, _ = bali.measure(shape, gilib.training.Bali(), repeats)
    values = sorted(times["bali"])
    return Spent(values[len(values) // 2], values[0], faults["bali"])


def sizes(family: str, varied: str, largest: int | None) -> Iterator[Size]:
    """Along a curve, the first few if asked."""
    for value in CURVES[family][varied][:largest]:
        yield BASE[family]._replace(**{varied: value})


def curve(family: str, varied: str, largest: int | None, repeats: int) -> list[Row]:
    """A row for each size; steps of all sizes and methods take turns."""
    steps, models = {}, {}
    chosen = list(sizes(family, varied, largest))
    timed = [method for method in METHODS[family] if method != "bali"]
    for size in chosen:
        for method in timed:
            steps[f"{method}, {size}"], models[method, size] = stepper(method, size)
    found = spent(steps, repeats)
    rows = []
    for size in chosen:
        times = {method: found[f"{method}, {size}"] for method in timed}
        numbers = size.points * (INPUTS + 1)
        if "bali" in METHODS[family]:
            times["bali"] = layerwise(size, repeats)
        rows.append(
            Row(
                {"family": family, "varied": varied, **size._asdict()},
                METHODS[family][0],
                {method: each.ms for method, each in times.items()},
                {method: floor(method, size) for method in times},
                {method: traffic(models[method, size], numbers) for method in timed},
                {method: each.faults for method, each in times.items()},
                {"fastest": {method: each.fastest_ms for method, each in times.items()}},
            )
        )
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Time, print, record."""
    known, curves = parser(__doc__, 7, threads=1), list(CURVES["networks"])
    known.add_argument("--families", nargs="+", choices=list(CURVES), default=list(CURVES))
    known.add_argument("--curves", nargs="+", choices=curves, default=curves)
    known.add_argument("--largest", type=int, help="so many sizes of a curve, the smallest first")
    options = known.parse_args(arguments)
    with running("growth", options) as run:
        rows = []
        for family in options.families:
            for varied in options.curves:
                rows += curve(family, varied, options.largest, options.repeats)
        run.finish(rows)


if __name__ == "__main__":
    main()
