"""The tasks of the comparisons: regressions, tables of labelled points, two moons, and images."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.uci_splits import VALIDATION, Data, load, load_validation
from experiments.comparisons.measures import measure
from experiments.images import load_images
from experiments.kurle2024.tasks import other_images
from experiments.labelled import classification_names, load_classification
from experiments.runner.records import Record
from gilib.data import Dataset
from gilib.likelihoods.mixtures import CategoricalPrediction, GaussianPrediction, Prediction

MOONS = "two moons"
MOON_POINTS, MOON_NOISE = 1000, 0.2  # number of points, and standard deviation of their noise


@dataclass(frozen=True)
class Task:
    """One split of a set, normalised.

    Attributes:
        data: name and checksum, for records.
        x: `[N, D]`.
        y: targets `[N, 1]`, or labels `[N]`.
        test_x: `[N*, D]`.
        test_y: targets `[N*, 1]`, or labels `[N*]`.
        classes: number of classes; None for regression.
        y_std: standard deviation of the targets in original units; 1 for classes.
        other: inputs out of distribution, `[N*, D]`, or None.
    """

    data: dict[str, str]
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int | None
    y_std: Tensor
    other: Tensor | None = None

    @property
    def outputs(self) -> int:
        """Number of outputs of a network: one for regression, else one for each class."""
        return self.classes or 1

    def to(self, device: torch.device) -> Task:
        """Return the task on another device."""
        moved: dict[str, Any] = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)


def task(name: str, split: int, dtype: torch.dtype = torch.float32, fresh: int = 0) -> Task:
    """Load a split of a set: published splits of regressions, our splits of labelled points.

    Args:
        name: name of the set.
        split: number of the split.
        dtype: dtype of the data.
        fresh: number of new test points instead of the split's, only for two moons, which can be simulated.

    Raises:
        ValueError: if `fresh` is given for another set.
    """
    if fresh and name != MOONS:
        raise ValueError(f"there are no fresh points of {name}: only the distribution of {MOONS} is known")
    if name == MOONS or name in classification_names():
        table = _table(name)
        part = table.split(split, dtype)
        test_x, test_y = part.test_x, part.test_y
        if fresh:
            x, test_y = moons(fresh, MOON_NOISE, torch.Generator().manual_seed(split + 1))
            test_x = part.normalisation.x(x).to(dtype)
        classes, one = len(table.class_names), torch.ones((), dtype=torch.float64)
        about = {"name": name, "sha256": table.sha256}
        return Task(about, part.train_x, part.train_y, test_x, test_y, classes, one)
    return _regression(load(name, [split], torch.device("cpu"), dtype))


def validation_task(name: str, split: int) -> Task:
    """Load the training part of a published split of a regression, with a fifth of it as test data."""
    return _regression(load_validation(name, [split], torch.device("cpu")))


def _regression(data: Data) -> Task:
    about = {"name": data.name, "sha256": data.sha256}
    return Task(about, data.x[0], data.y[0], data.test_x[0], data.test_y[0], None, data.y_std[0].double())


def image_task(name: str, split: int, images: int, validation: bool = False) -> Task:
    """Load a split of a set of images as rows of pixels: its own training images, and all test images.

    Args:
        name: "mnist" or "fashion-mnist"; the other set is out of distribution.
        split: number of the part of the training images, in their order.
        images: number of training images of a split.
        validation: whether a fifth of these replaces the test images, which are then not used.

    Raises:
        ValueError: if the set has no such part.
    """
    data = load_images(name)
    own = slice(split * images, (split + 1) * images)
    if own.stop > len(data.train_x):
        raise ValueError(
            f"split {split} of {images} images ends at {own.stop}, and {name} has {len(data.train_x)}"
        )
    part = replace(data, train_x=data.train_x[own], train_y=data.train_y[own]).tensors()
    (x, test_x), held = (part.train_x.flatten(1), part.test_x.flatten(1)), images // VALIDATION
    train, test = (x, part.train_y), (test_x, part.test_y)
    if validation:
        train, test = (x[:-held], part.train_y[:-held]), (x[-held:], part.train_y[-held:])
    about, one = {"name": data.label, "sha256": data.sha256}, torch.ones((), dtype=torch.float64)
    other = other_images(name, len(test[0]), torch.device("cpu"))
    return Task(about, *train, *test, len(data.class_names), one, other)


@functools.lru_cache(1)
def _table(name: str) -> Dataset:
    if name != MOONS:
        return load_classification(name)
    x, y = moons(MOON_POINTS, MOON_NOISE, torch.Generator().manual_seed(0))
    return Dataset(MOONS, x, y, class_names=("upper", "lower"))


def moons(points: int, noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw two interleaving half circles: inputs `[N, 2]`, float64, and labels `[N]`.

    Args:
        points: N, the number of points of both.
        noise: standard deviation of the noise on inputs.
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
    """Measure a prediction of test data.

    Args:
        found: prediction at the test inputs, normalised.
        of: the task.

    Returns:
        For regression the metrics of `measures.measure`; for classes `log_likelihood` (nats per point),
        `error` (fraction of wrong labels) and `ece`, the expected calibration error.
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


def broken(of: Task, steps: int, why: object) -> Record:
    """Return the body of a record of a training that broke down."""
    return {"data": of.data, "metrics": {}, "curve": [], "diverged_at": steps, "why": str(why)[:200]}


def check(configs: Any) -> None:
    """Check that every data set is on this machine, or can be downloaded."""
    for name in dict.fromkeys(config.dataset for config in configs):
        task(name, 0)
