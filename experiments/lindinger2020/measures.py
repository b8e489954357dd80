"""Measure a trained network: bound, predictions, and some single test points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.bounds import sampled_bounds
from experiments.common.measuring import significant
from experiments.common.uci_splits import CURVE
from experiments.lindinger2020.tasks import Task
from experiments.runner.records import Record
from gilib.draws import Drawn
from gilib.likelihoods.mixtures import GaussianPrediction

AT_ONCE = 2**16  # draws × points, which limits the memory of an evaluation
DIGITS = 4  # significant digits of the records of single test points


def bound(
    net: gilib.Network, likelihood: gilib.Gaussian, task: Task, samples: int, seed: int
) -> dict[str, float]:
    """Measure the ELBO on the training points, in nats on normalised targets.

    Returns:
        `elbo` per point, its `elbo_stderr` over the draws, and `elbo_total`, the sum over `points` points.
    """
    source, points = torch.Generator(task.x.device).manual_seed(seed), len(task.x)
    found = sampled_bounds(net, likelihood, task.x, task.y, samples, max(1, AT_ONCE // samples), source)
    return {
        "elbo": float(found.mean()),
        "elbo_stderr": float(found.std()) / math.sqrt(samples),
        "elbo_total": float(found.mean()) * points,
        "points": points,
    }


Functions = Callable[[int], Drawn]  # maps a number of points to draws that can be evaluated there


def estimates(net: gilib.Network, samples: int, seed: int) -> Functions:
    """Return new estimates of a posterior for every batch of points."""
    source = torch.Generator(next(net.parameters()).device).manual_seed(seed)
    return lambda points: net.estimate(samples, points, generator=source)


@torch.no_grad()
def states(chain: gilib.prediction.Samples, seed: int) -> Functions:
    """Return the functions of a chain's states, one for each state."""
    like = next(chain.net.parameters())
    draw = chain.draw(generator=torch.Generator(like.device).manual_seed(seed))
    return lambda points: draw


@torch.no_grad()
def predictions(at: Functions, samples: int, likelihood: gilib.Gaussian, task: Task) -> dict[str, Tensor]:
    """Return log-likelihood, variance with noise and squared error, each `[N*]`, of all test points.

    All are in original units. Predictions are equal mixtures over `samples` draws; the last layer is
    integrated in closed form.
    """
    size = max(1, AT_ONCE // samples)
    pairs = zip(task.test_x.split(size), task.test_y.split(size), strict=True)
    parts = [_predicted(at(len(x)), likelihood, task, x, y) for x, y in pairs]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _predicted(
    draw: Drawn, likelihood: gilib.Gaussian, task: Task, x: Tensor, targets: Tensor
) -> dict[str, Tensor]:
    mean, variance = draw.moments(x)
    found = likelihood.predictive(mean.double(), task.normalisation, _double(variance))
    assert isinstance(found, GaussianPrediction)
    return {
        "log_likelihood": found.log_prob(targets),
        "variance": found.sd[..., 0].square(),
        "squared_error": (found.mean - targets)[..., 0].square(),
    }


def _double(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.double()


def distances(task: Task) -> Tensor:
    """Return the distance of every test input to the nearest training input, normalised, `[N*]`."""
    parts = task.test_x.double().split(max(1, AT_ONCE * 64 // len(task.all_x)))
    return torch.cat([torch.cdist(part, task.all_x.double()).amin(-1) for part in parts])


def test_metrics(found: dict[str, Tensor]) -> dict[str, float]:
    """Return test log-likelihood per point and RMSE, in original units."""
    return {
        "test_log_likelihood": float(found["log_likelihood"].mean()),
        "rmse": float(found["squared_error"].mean().sqrt()),
    }


def shown(found: dict[str, Tensor], task: Task) -> dict[str, list[float]]:
    """Return predictions and distances to training inputs at the points `task.shown`, to four digits."""
    rows = found | {"distance": distances(task)}
    return {name: [significant(value, DIGITS) for value in rows[name][task.shown].tolist()] for name in rows}


def body(task: Task, metrics: dict[str, Any], history: gilib.training.History, points: int = CURVE) -> Record:
    """Return the body of a record, with `points` points of the training curve (the mean over replicas)."""
    trace = history.elbo.flatten(1).mean(-1) if history.elbo.dim() > 1 else history.elbo
    curve = trace[:: max(1, len(trace) // points)]
    return {
        "data": {"name": task.name, "sha256": task.sha256},
        "metrics": {k: significant(v) if isinstance(v, float) else v for k, v in metrics.items()},
        "curve": [significant(value) for value in curve.tolist()],
    }
