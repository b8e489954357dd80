"""Table 2 of Ober & Aitchison (2021) with another reading: each layer's function at its own random inputs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

import gilib
from experiments.ober2021.toy import ToyConfig, problem_of, training
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.draws import Composition, Draw


def configurations(scale: str) -> Iterator[ToyConfig]:
    """Yield the paper's three methods as in Table 2; short runs have fewer points and twice the rate."""
    seeds, steps, points, rate = {
        "smoke": (1, 50, 100, 0.01),
        "reduced": (1, 1000, 40, 0.02),
        "paper": (3, 5000, 100, 0.01),
    }[scale]
    for seed in range(seeds):
        for method in ("gi", "li", "fac"):
            yield ToyConfig(method, seed, num_inducing=points, steps=steps, lr=rate, scale=scale)


def own_variances(draw: Draw, generator: Generator) -> list[Tensor]:
    """Return the mean variance of φ(x) W for every layer, where x is standard normal with the layer's width.

    φ is the identity before the first layer and ReLU before the others; biases are left out. Under
    NealPrior(1) the variance of a layer with I weights and a bias is I / (I + 1), or half of that after ReLU.

    Args:
        draw: functions of a network with two hidden layers of 50 ReLU units.
        generator: source of 200 inputs for each layer.
    """
    chain, variances = draw.function, []
    assert isinstance(chain, Composition)
    for width, function in zip((1, 50, 50), chain.functions[::2], strict=True):
        x = torch.randn(200, width, generator=generator, device=generator.device)
        x = x if width == 1 else x.relu()
        variances.append((function(x) - function(torch.zeros_like(x[:1]))).var(0).mean())
    return variances


def run(config: ToyConfig, job: Job) -> Record:
    """Train one configuration; record its bound in total nats, and the variances of its layers' functions."""
    own = training(config, job.device)
    net, likelihood = own.start()
    gilib.fit(net, likelihood, own.x, own.y, **own.settings, **job.fit_options())
    generator = torch.Generator(own.x.device).manual_seed(2000 + config.seed)
    with torch.no_grad():
        draw = net.draw(1000, generator=generator)
        bound = gilib.elbo(draw, likelihood, own.x, own.y, num_data=config.num_points)
        variances = [float(value) for value in own_variances(draw, generator)]
    data = {"name": "toy", "sha256": problem_of(config).sha256}
    return {"data": data, "metrics": {"elbo": float(bound), "own_variances": variances}}


EXPERIMENTS = {
    "toy_layers": Experiment(
        "Table 2, its variances layer by layer", ToyConfig, configurations, one_by_one(run)
    ),
}
