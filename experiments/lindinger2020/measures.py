"""What is measured of a trained network: bound, predictions, and each of some test points."""

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

AT_ONCE = 2**16  # draws × points: bounds the memory of an evaluation
DIGITS = 4  # of what is recorded of each test point


def bound(
    net: gilib.Network, likelihood: gilib.Gaussian, task: Task, samples: int, seed: int
) -> dict[str, float]:
    """The ELBO on the points that were trained on, nats on normalised targets.

    Returns:
        `elbo` per point and `elbo_stderr` over the draws, `elbo_total` summed over the `points`.
    """
    source, points = torch.Generator(task.x.device).manual_seed(seed), len(task.x)
    found = sampled_bounds(net, likelihood, task.x, task.y, samples, max(1, AT_ONCE // samples), source)
    return {
        "elbo": float(found.mean()),
        "elbo_stderr": float(found.std()) / math.sqrt(samples),
        "elbo_total": float(found.mean()) * points,
        "points": points,
    }


Functions = Callable[[int], Drawn]  # draws, for a number of points at which they are to be evaluated


def estimates(net: gilib.Network, samples: int, seed: int) -> Functions:
    """Draws of a posterior: new ones for every batch of points, every point by itself."""
    source = torch.Generator(next(net.parameters()).device).manual_seed(seed)
    return lambda points: net.estimate(samples, points, generator=source)


@torch.no_grad()
def states(chain: gilib.prediction.Samples, seed: int) -> Functions:
    """The functions of a chain's states, one of each."""
    like = next(chain.net.parameters())
    draw = chain.draw(generator=torch.Generator(like.device).manual_seed(seed))
    return lambda points: draw


@torch.no_grad()
def predictions(at: Functions, samples: int, likelihood: gilib.Gaussian, task: Task) -> dict[str, Tensor]:
    """Of every test point, `[N*]` in original units: log-likelihood, variance with noise, squared error.

    Predictions are equal mixtures over so many draws, in each of which the last layer is integrated in closed
    form.
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
    """How far the nearest training input is from every test input, in normalised units, `[N*]`."""
    parts = task.test_x.double().split(max(1, AT_ONCE * 64 // len(task.all_x)))
    return torch.cat([torch.cdist(part, task.all_x.double()).amin(-1) for part in parts])


def test_metrics(found: dict[str, Tensor]) -> dict[str, float]:
    """Test log-likelihood per point and RMSE, original units."""
    return {
        "test_log_likelihood": float(found["log_likelihood"].mean()),
        "rmse": float(found["squared_error"].mean().sqrt()),
    }


def shown(found: dict[str, Tensor], task: Task) -> dict[str, list[float]]:
    """The same and the distance to the training inputs of the points of `task.shown`, to four digits."""
    rows = found | {"distance": distances(task)}
    return {name: [_digits(value) for value in rows[name][task.shown].tolist()] for name in rows}


def body(task: Task, metrics: dict[str, Any], history: gilib.training.History, points: int = CURVE) -> Record:
    """A record: the data, numbers with six digits, so many points of the training curve (replicas' mean)."""
    trace = history.elbo.flatten(1).mean(-1) if history.elbo.dim() > 1 else history.elbo
    curve = trace[:: max(1, len(trace) // points)]
    return {
        "data": {"name": task.name, "sha256": task.sha256},
        "metrics": {k: significant(v) if isinstance(v, float) else v for k, v in metrics.items()},
        "curve": [significant(value) for value in curve.tolist()],
    }


def _digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
