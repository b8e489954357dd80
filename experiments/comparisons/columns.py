"""Test the uncertainty of the recommended Gaussian process with many columns and few rows.

Five of D normal columns matter: y = f(x) + ½ε, where f is linear or nonlinear. Each process is fitted twice:
with priors over its lengthscales and its noise, and without, by the evidence alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import gilib
from experiments.common.measuring import significant
from experiments.comparisons.measures import measure
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.data import Normalisation, sha256_of
from gilib.kernels import RBF
from gilib.likelihoods.mixtures import GaussianPrediction
from gilib.recipes.processes import ProcessRecipe

NOISE = 0.5  # standard deviation
WEIGHTS = (1.0, -2.0, 1.5, 0.5, -1.0)  # of the linear function
TEST_POINTS = 1000
COLUMNS, POINTS, SEEDS = (5, 30, 100, 300), (50, 100, 300), 5


@dataclass(frozen=True)
class ColumnsConfig:
    """One fit.

    Attributes:
        function: "linear" or "nonlinear".
        columns: D.
        points: N, the number of training points.
        prior: whether lengthscales and noise have priors.
        seed: seed of the data.
        steps: steps of L-BFGS; 0 for the recipe's default.
        scale: "smoke" or "paper".
    """

    function: str
    columns: int
    points: int
    prior: bool
    seed: int
    steps: int = 0
    scale: str = "paper"


def grid(scale: str) -> Iterator[ColumnsConfig]:
    """Yield all sizes of both functions, seed by seed, with and without priors."""
    if scale == "smoke":
        yield from (ColumnsConfig("linear", 5, 50, prior, 0, 3, scale) for prior in (True, False))
        return
    for prior, seed in itertools.product((True, False), range(SEEDS)):
        for function, columns, points in itertools.product(("linear", "nonlinear"), COLUMNS, POINTS):
            yield ColumnsConfig(function, columns, points, prior, seed)


def data(config: ColumnsConfig) -> tuple[Tensor, Tensor]:
    """Draw inputs `[N + 1000, D]` and targets `[N + 1000, 1]`; the last 1000 are for the test."""
    source = torch.Generator().manual_seed(config.seed)
    total = config.points + TEST_POINTS
    x = torch.randn(total, config.columns, generator=source, dtype=torch.float64)
    a, b, c, d, e = x.mT[:5]
    if config.function == "linear":
        f = x[:, :5] @ torch.tensor(WEIGHTS, dtype=torch.float64)
    else:
        f = 2.0 * torch.sin(1.5 * a) + b.square() + c * d + e.abs()
    return x, (f + NOISE * torch.randn(total, generator=source, dtype=torch.float64))[:, None]


def recipe(config: ColumnsConfig) -> ProcessRecipe:
    """Return the recommended recipe, with or without priors."""
    own = ProcessRecipe(steps=config.steps) if config.steps else ProcessRecipe()
    if config.prior:
        return own
    return replace(
        own, kernels=tuple(replace(k, log_lengthscale_sd=None) for k in own.kernels if isinstance(k, RBF))
    )


def run(config: ColumnsConfig, job: Job) -> Record:
    """Fit and measure one configuration.

    Returns:
        A record: the metrics of `measures.measure` at 1000 new points, `noise_sd` in units of the targets,
        `elbo` per training point on normalised targets, and processor seconds.
    """
    x, y = data(config)
    scales = Normalisation.fit(x[: config.points], y[: config.points])
    x, y = scales.x(x), scales.y(y)
    begin = time.process_time()
    net, likelihood, _ = recipe(config).train(x[: config.points], y[: config.points], progress=False)
    found = gilib.predict(net, likelihood, x[config.points :], 1)
    assert isinstance(found, GaussianPrediction)
    seconds = time.process_time() - begin
    elbo = gilib.recipes.bound(net, likelihood, x[: config.points], y[: config.points])
    assert isinstance(likelihood, gilib.Gaussian)
    noise = likelihood.noise_variance.detach().sqrt() * scales.y_std
    metrics = measure(found, y[config.points :], scales.y_std[0])
    metrics |= {"noise_sd": float(noise), "elbo": float(elbo), "process_seconds": seconds}
    about = {"name": "five of many normal columns", "sha256": sha256_of(*data(config))}
    return {"data": about, "metrics": {k: significant(v) for k, v in metrics.items()}, "curve": []}


EXPERIMENTS = {
    "columns": Experiment(
        "Coverage of Gaussian processes where columns are many",
        ColumnsConfig,
        grid,
        one_by_one(run),
        scales=("smoke", "paper"),
    )
}
