"""The sets on which defaults are studied: regression, tables of labelled points, and two moons."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gilib
from gilib.data import Dataset, classification_names, load_classification
from gilib.experiments.common.uci_splits import load
from gilib.experiments.comparisons.measures import measure
from gilib.likelihoods.mixtures import CategoricalPrediction, GaussianPrediction, Prediction

MOONS = "two moons"
MOON_POINTS, MOON_NOISE = 1000, 0.2  # in all; standard deviation


@dataclass(frozen=True)
class Task:
    """One split of a set, normalised, float32.

    Attributes:
        data: name and checksum, as records have them.
        x: `[N, D]`.
        y: targets `[N, 1]`, or labels `[N]`.
        test_x: `[N*, D]`.
        test_y: likewise.
        classes: how many; None: regression.
        y_std: standard deviation of the targets in original units; 1 of classes.
    """

    data: dict[str, str]
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int | None
    y_std: Tensor


def task(name: str, split: int) -> Task:
    """A set's split: published ones of regression, ours of labelled points."""
    if name == MOONS or name in classification_names():
        table = _table(name)
        part = table.split(split)
        classes, one = len(table.class_names), torch.ones((), dtype=torch.float64)
        about = {"name": name, "sha256": table.sha256}
        return Task(about, part.train_x, part.train_y, part.test_x, part.test_y, classes, one)
    data = load(name, [split], torch.device("cpu"))
    about = {"name": name, "sha256": data.sha256}
    return Task(about, data.x[0], data.y[0], data.test_x[0], data.test_y[0], None, data.y_std[0].double())


@functools.lru_cache(1)
def _table(name: str) -> Dataset:
    if name != MOONS:
        return load_classification(name)
    x, y = moons(MOON_POINTS, MOON_NOISE, torch.Generator().manual_seed(0))
    return Dataset(MOONS, x, y, class_names=("upper", "lower"))


def moons(points: int, noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two half circles that reach into each other: inputs `[N, 2]`, float64, and labels `[N]`.

    Args:
        points: of both together.
        noise: standard deviation of that on the inputs.
        generator: source of positions and noise.

    >>> x, y = moons(6, 0.0, torch.Generator().manual_seed(0))
    >>> x.shape, y.tolist(), bool((x[y == 0, 1] >= 0).all())
    (torch.Size([6, 2]), [0, 1, 0, 1, 0, 1], True)
    """
    angle = math.pi * torch.rand(points, generator=generator, dtype=torch.float64)
    y = torch.arange(points) % 2
    sign = 1.0 - 2.0 * y
    x = torch.stack([y + sign * angle.cos(), 0.5 * y + sign * angle.sin()], -1)
    return x + noise * torch.randn(x.shape, generator=generator, dtype=torch.float64), y


def measured(found: Prediction, of: Task) -> dict[str, float]:
    """How well test data are predicted.

    Args:
        found: of the test inputs, normalised.
        of: the task.

    Returns:
        Of regression what `measures.measure` gives; of classes `log_likelihood` (nats per point), `error`
        (share that is wrong) and `ece`.
    """
    if isinstance(found, GaussianPrediction):
        found = GaussianPrediction(found.means.double(), found.component_sd.double())
        return measure(found, of.test_y.double(), of.y_std)
    assert isinstance(found, CategoricalPrediction)
    probabilities = found.mean.double()
    return {
        "log_likelihood": float(found.log_prob(of.test_y).mean()),
        "error": 1.0 - float(gilib.metrics.accuracy(probabilities, of.test_y)),
        "ece": float(gilib.metrics.expected_calibration_error(probabilities, of.test_y)),
    }


def check(configs: Any) -> None:
    """Raise unless every data set is here, or can be fetched."""
    for name in dict.fromkeys(config.dataset for config in configs):
        task(name, 0)


__all__ = ["MOONS", "Task", "check", "measured", "moons", "task"]
