"""The toy problem of Ober & Aitchison (2021, Sec. 3.1, Apps. I and J), and of its TensorFlow reproduction.

Forty points of y = x³ + ε with a gap in the middle, a network of 2 × 50 ReLU units, NealPrior, the true
noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.measuring import rounded
from experiments.common.methods import posterior_of
from experiments.examples import ToyProblem, toy
from experiments.runner.experiment import Experiment, Job, Training, one_by_one
from experiments.runner.records import Record
from gilib.metrics import layer_variances

GRID = torch.linspace(-2.0, 2.0, 81)[:, None]  # normalised inputs at which predictions are recorded
PRIOR_SCALES = (1.0, 1.4142, 2.0)
METHODS = {name: posterior_of(name) for name in ("fac", "li", "gi", "fac_gi", "rand_gi")}


@dataclass(frozen=True)
class ToyConfig:
    """One training on the toy problem; the defaults are the paper's settings (App. O)."""

    method: str = "gi"
    seed: int = 0
    normalise: bool = True
    num_points: int = 40
    balanced: bool = False
    num_inducing: int = 100
    inducing_start: str = "normal"
    steps: int = 5000
    num_samples: int = 10
    lr: float = 1e-2
    prior_scale: float = 1.0
    learn_noise: bool = False
    iwbo_draws: int = 0
    estimator: str = "draw"
    scale: str = "paper"


def table_2(scale: str) -> Iterator[ToyConfig]:
    """Yield the trainings of Table 2 and Fig. 1: all methods on ten data draws, normalised and not."""
    seeds, steps, draws = {"smoke": (1, 50, 50), "reduced": (3, 1000, 1000), "paper": (10, 5000, 1000)}[scale]
    for normalise in (True, False):
        for seed in range(seeds):
            for method in ("gi", "fac", "li", "fac_gi", "rand_gi") if normalise else ("gi", "fac", "li"):
                yield ToyConfig(method, seed, normalise, steps=steps, iwbo_draws=draws, scale=scale)


def figure_a2(scale: str) -> Iterator[ToyConfig]:
    """Yield the trainings of Fig. A2, with 2 to 40 inducing points."""
    seeds, steps, draws = {"smoke": (1, 50, 50), "reduced": (2, 1000, 1000), "paper": (5, 5000, 1000)}[scale]
    for seed in range(seeds):
        for points in (2, 5, 10, 20, 40):
            yield ToyConfig("gi", seed, num_inducing=points, steps=steps, iwbo_draws=draws, scale=scale)


def wider_priors(scale: str) -> Iterator[ToyConfig]:
    """Yield all methods under NealPrior times 1, √2 (which preserves mean squares under ReLU) and 2.

    Independent weights are trained with pointwise noise, too. `table_2` has the other trainings at scale 1.
    """
    seeds, steps, draws = {"smoke": (1, 50, 50), "reduced": (1, 1000, 1000), "paper": (3, 5000, 1000)}[scale]
    base = ToyConfig(steps=steps, iwbo_draws=draws, scale=scale)
    for seed in range(seeds):
        for prior_scale in PRIOR_SCALES:
            common = replace(base, seed=seed, prior_scale=prior_scale)
            yield replace(common, method="fac", estimator="pointwise")
            if prior_scale != 1.0:
                yield from (replace(common, method=method) for method in METHODS)


def reproduction(scale: str) -> Iterator[ToyConfig]:
    """Yield the TensorFlow reproduction: 100 points, learned noise, wide prior, one sample; its two sweeps.

    Posterior and prior are the same, but not the initial pseudo-outputs and precisions.
    """
    seeds, sweep_seeds, steps = {"smoke": (1, 1, 50), "reduced": (3, 1, 2000), "paper": (10, 3, 10000)}[scale]
    base = ToyConfig(
        num_points=100,
        balanced=True,
        inducing_start="data",
        steps=steps,
        num_samples=1,
        prior_scale=2.0,
        learn_noise=True,
        iwbo_draws=1000,
        scale=scale,
    )
    yield from (replace(base, seed=seed) for seed in range(seeds))
    for seed in range(sweep_seeds):
        for k in range(11):
            yield replace(base, seed=seed, prior_scale=round(10 ** (k / 10 - 0.5), 4))
        for points in (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90):
            yield replace(base, seed=seed, num_inducing=points)


def run(config: ToyConfig, job: Job) -> Record:
    """Train one configuration and measure it.

    Args:
        config: the configuration.
        job: device and checkpoint.

    Returns:
        ELBO (mean over 1000 draws and its standard error), IWBO (ten repetitions), layer variances, the
        predictive distribution on a grid and the thinned training curve, in total nats and units of the
        training targets.
    """
    problem = problem_of(config)
    own = training(config, job.device)
    net, likelihood = own.start()
    history = gilib.fit(net, likelihood, own.x, own.y, **own.settings, **job.fit_options())
    measured = own.measure(net, likelihood)
    curve = history.elbo[:: max(1, config.steps // 50)]
    data = {"name": "toy", "sha256": problem.sha256}
    return {"data": data, "metrics": measured, "curve": [round(value, 4) for value in curve.tolist()]}


def problem_of(config: ToyConfig) -> ToyProblem:
    """Return the data of a configuration."""
    return toy(config.seed, config.num_points, normalise=config.normalise, balanced=config.balanced)


def training(config: ToyConfig, device: torch.device) -> Training:
    """Return the training of a configuration."""
    problem = problem_of(config)
    x, y = problem.x.to(device), problem.y.to(device)

    def start(**changed: Any) -> tuple[gilib.Network, gilib.Gaussian]:
        net, likelihood = build(config, problem, **changed)
        return net.to(device), likelihood.to(device)

    settings = {
        "steps": config.steps,
        "num_samples": config.num_samples,
        "rule": gilib.Adam(config.lr),
        "seed": config.seed,
        "estimator": config.estimator,
    }
    return Training(start, x, y, settings, partial(measure, config, x, y))


def build(config: ToyConfig, problem: ToyProblem, **changed: Any) -> tuple[gilib.Network, gilib.Gaussian]:
    """Build network and likelihood of a configuration."""
    generator = torch.Generator().manual_seed(1000 + config.seed)
    if config.inducing_start == "data":
        order = torch.randperm(config.num_points, generator=generator)[: config.num_inducing]
        points = problem.x[order]
    else:
        points = torch.randn(config.num_inducing, 1, generator=generator)
    make = partial(
        gilib.models.mlp,
        1,
        (50, 50),
        1,
        posterior=METHODS[config.method],
        prior=gilib.NealPrior(config.prior_scale),
        inducing_points=points,
        generator=generator,
    )
    noise = math.exp(-4.0) if config.learn_noise else problem.noise_variance
    return make(**changed), gilib.Gaussian(noise, learn=config.learn_noise)


@torch.no_grad()
def measure(
    config: ToyConfig, x: Tensor, y: Tensor, net: gilib.Network, likelihood: gilib.Gaussian
) -> Record:
    """Measure a trained network, and return its record; `x` and `y`, `[N, 1]`, are its training data."""
    generator = torch.Generator(x.device).manual_seed(2000 + config.seed)
    draw = net.draw(1000, generator=generator)
    bounds = gilib.elbo(draw, likelihood, x, y, num_data=config.num_points, reduction="none")
    grid = GRID.to(x) * (1.0 if config.normalise else x.std())
    prediction = gilib.predict(net, likelihood, grid, 1000, generator=generator)
    assert isinstance(prediction, gilib.prediction.GaussianPrediction)
    inputs = torch.randn(200, 1, generator=generator, device=x.device)
    measured: Record = {
        "elbo": float(bounds.mean()),
        "elbo_stderr": float(bounds.std() / math.sqrt(len(bounds))),
        "layer_variances": [float(value) for value in layer_variances(draw, inputs)],
        "noise_variance": float(likelihood.noise_variance),
        "grid": rounded(grid, 5),
        "mean": rounded(prediction.mean, 5),
        "function_sd": rounded(prediction.function_sd, 5),
        "sd": rounded(prediction.sd, 5),
    }
    if config.iwbo_draws:
        repeats = [
            gilib.iwbo(net.draw(config.iwbo_draws, generator=generator), likelihood, x, y) for _ in range(10)
        ]
        values = torch.stack(repeats)
        measured |= {"iwbo": float(values.mean()), "iwbo_stderr": float(values.std() / math.sqrt(10))}
    return measured


EXPERIMENTS = {
    "toy": Experiment(
        "Table 2 and Fig. 1: methods on the toy problem", ToyConfig, table_2, one_by_one(run), build=training
    ),
    "toy_inducing": Experiment(
        "Fig. A2: the number of inducing points", ToyConfig, figure_a2, one_by_one(run), build=training
    ),
    "toy_prior": Experiment(
        "The toy problem under wider priors, with all methods",
        ToyConfig,
        wider_priors,
        one_by_one(run),
        build=training,
    ),
    "reproduction": Experiment(
        "The TensorFlow reproduction and its sweeps", ToyConfig, reproduction, one_by_one(run), build=training
    ),
}
