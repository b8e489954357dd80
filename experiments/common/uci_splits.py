"""The UCI sets with splits as replicas, and the measurements and records of every replica."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.measuring import significant
from experiments.runner.records import Record
from gilib.data import Dataset, Normalisation, Split, load_uci
from gilib.draws import Drawn
from gilib.linalg import failures_as_nan
from gilib.metrics import log_mean_exp
from gilib.randomness import ReplicaGenerators

EVALUATED_AT_ONCE = 2**21  # draws × replicas × points, which limits the memory of a hidden layer
CURVE = 40  # recorded points of a training curve
VALIDATION = 5  # a fifth of the training points is held out for validation

Functions = Callable[[int], Drawn]  # maps a number of points to functions for so many points


@dataclass(frozen=True)
class Data:
    """Several splits of one set along the replica axis, normalised.

    Attributes:
        name: name of the set.
        sha256: checksum of its arrays.
        x: `[R, N, D]`; `y` `[R, N, 1]`; `test_x` `[R, N*, D]`; `test_y` `[R, N*, 1]`.
        y_std: standard deviation of the targets, `[R]`, original units.
    """

    name: str
    sha256: str
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    y_std: Tensor


@functools.lru_cache(1)
def _dataset(name: str) -> Dataset:
    return load_uci(name)


def check(configs: Sequence[Any]) -> None:
    """Check that the sets of all configurations are on this machine, or can be downloaded."""
    for name in dict.fromkeys(config.dataset for config in configs):
        load_uci(name)


def load(name: str, splits: Sequence[int], device: torch.device, dtype: torch.dtype = torch.float32) -> Data:
    """Load the given splits of a set; a split may occur several times."""
    dataset = _dataset(name)
    distinct: dict[int, Split] = {k: dataset.split(k, dtype, device) for k in dict.fromkeys(splits)}
    chosen = [distinct[k] for k in splits]
    return Data(
        name=name,
        sha256=dataset.sha256,
        x=torch.stack([split.train_x for split in chosen]),
        y=torch.stack([split.train_y for split in chosen]),
        test_x=torch.stack([split.test_x for split in chosen]),
        test_y=torch.stack([split.test_y for split in chosen]),
        y_std=torch.stack([split.normalisation.y_std[0] for split in chosen]).to(device, dtype),
    )


def load_validation(name: str, splits: Sequence[int], device: torch.device) -> Data:
    """Load the published training part of every given split, with a fifth of it as test data.

    The published test data are not used. The last fifth of the training rows, which are in random order,
    takes their place; all data are normalised with the statistics of the other four fifths.
    """
    dataset = _dataset(name)
    parts = [_validation(dataset, k) for k in splits]
    stacked = (torch.stack(values).to(device) for values in zip(*parts, strict=True))
    return Data(name, dataset.sha256, *stacked)


def _validation(dataset: Dataset, split: int) -> tuple[Tensor, ...]:
    """Return the tensors of `Data` for one split, float32."""
    rows = dataset.split(split).train_index
    held = len(rows) // VALIDATION
    inner, outer = rows[:-held], rows[-held:]
    scales = Normalisation.fit(dataset.x[inner], dataset.y[inner])
    pairs = [(scales.x(dataset.x[part]), scales.y(dataset.y[part])) for part in (inner, outer)]
    return tuple(values.float() for values in (*pairs[0], *pairs[1], scales.y_std[0]))


@torch.no_grad()
def drawn(net: gilib.Network, samples: int, seeds: Sequence[int]) -> gilib.Draw:
    """Draw functions for measurements; they are NaN for replicas whose factorisation fails."""
    like = next(net.parameters())
    with failures_as_nan():
        return net.draw(samples, generator=ReplicaGenerators([2000 + seed for seed in seeds], like.device))


def measure(draw: gilib.Draw, likelihood: gilib.Gaussian, data: Data) -> dict[str, Tensor]:
    """Return the recorded metrics of trained networks, each `[R]`."""
    return measure_at(lambda points: draw, likelihood, data)


@torch.no_grad()
def measure_at(at: Functions, likelihood: gilib.Gaussian, data: Data) -> dict[str, Tensor]:
    """Measure functions made for a number of points; `iwbo` is a bound if every call returns the same."""
    points = data.x.shape[1]
    train_log_prob, _ = _evaluate(at, likelihood, data.x, data.y)
    bounds = train_log_prob.sum(-1).double() + at(points).density.double()  # [S, R]
    test_log_prob, mean = _evaluate(at, likelihood, data.test_x, data.test_y)
    return {
        "elbo": bounds.mean(0) / points,
        "elbo_stderr": bounds.std(0) / math.sqrt(len(bounds)) / points,
        "iwbo": log_mean_exp(bounds, 0) / points,
        "test_log_likelihood": gilib.metrics.test_log_likelihood(test_log_prob) - data.y_std.log(),
        "rmse": gilib.metrics.rmse(mean, data.test_y) * data.y_std,
        "noise_variance": likelihood.noise_variance,
    }


def _evaluate(at: Functions, likelihood: gilib.Gaussian, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-likelihoods `[S, R, N]` and mean prediction `[R, N, 1]`, computed in batches."""
    size = max(1, EVALUATED_AT_ONCE // at(1).density.numel())
    log_probs, means = [], []
    for inputs, targets in zip(x.split(size, 1), y.split(size, 1), strict=True):
        outputs = at(inputs.shape[1])(inputs)
        log_probs.append(likelihood.log_prob(outputs, targets))
        means.append(outputs.mean(0))
    return torch.cat(log_probs, -1), torch.cat(means, -2)


def records(data: Data, history: gilib.training.History, results: dict[str, Tensor]) -> list[Record]:
    """Return one record for each replica, from results `[R]` by name and the training curve."""
    assert history.diverged_at is not None
    return [_record(data, history, results, r, int(at)) for r, at in enumerate(history.diverged_at)]


def _record(
    data: Data, history: gilib.training.History, results: dict[str, Tensor], replica: int, diverged_at: int
) -> Record:
    steps = len(history.elbo)
    curve = history.elbo[:, replica]
    if diverged_at >= 0:
        curve = curve[:diverged_at]
    record: Record = {
        "data": {"name": data.name, "sha256": data.sha256},
        "metrics": {name: significant(float(value[replica])) for name, value in results.items()},
        "curve": [significant(value) for value in curve[:: max(1, steps // CURVE)].tolist()],
    }
    finite = all(math.isfinite(value) for value in record["metrics"].values())
    if diverged_at >= 0 or not finite:
        record |= {"metrics": {}, "diverged_at": diverged_at if diverged_at >= 0 else steps}
    return record
