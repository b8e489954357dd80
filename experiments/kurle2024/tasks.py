"""Data of the experiments with BALI: for training, for measurements on the way, and for the final test."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from experiments.images import load_images
from experiments.labelled import load_classification
from gilib.data import load_uci
from gilib.validation import check_choice

TABLES = ("spambase", "telescope", "diabetes")
IMAGES = ("mnist-500", "mnist", "fashion-mnist")
OTHER = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}  # the set out of distribution
STAGES = ("search", "curve", "final")


@dataclass(frozen=True)
class Points:
    """Inputs `[N, D]`, and targets `[N, 1]` or labels `[N]`."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        """Return N."""
        return len(self.x)

    def first(self, count: int) -> Points:
        """Return the first points."""
        return Points(self.x[:count], self.y[:count])

    def without_last(self, count: int) -> tuple[Points, Points]:
        """Return all but the last points, and the last points."""
        return Points(self.x[:-count], self.y[:-count]), Points(self.x[-count:], self.y[-count:])


@dataclass(frozen=True)
class Task:
    """One split of a set, normalised by its training data.

    Attributes:
        name: name of the set in results.
        sha256: checksum of the complete set.
        classes: number of classes; 0 for regression.
        train: training points.
        monitored: points that are measured during training.
        test: points that are measured at the end.
        log_scale: subtract it from log-likelihoods of a regression to obtain original units.
    """

    name: str
    sha256: str
    classes: int
    train: Points
    monitored: Points
    test: Points
    log_scale: float = 0.0


def load(dataset: str, split: int, stage: str, images: int, device: torch.device) -> Task:
    """Load the data of a training.

    At the stages "search" and "curve" the last tenth of the training points is held out. "search" measures it
    at the end; "curve" measures it during training and the test points at the end. At the stage "final" no
    points are held out, and test points are measured during training, when settings are frozen.

    Args:
        dataset: a set of `TABLES`, of `IMAGES`, or of `gilib.data.load_uci`.
        split: number of the split; images have only one.
        stage: one of `STAGES`.
        images: number of first training images; 0 for all.
        device: device of the data.
    """
    check_choice(stage, STAGES, "stage")
    task = _images(dataset, device) if dataset in IMAGES else _table(dataset, split, device)
    train, monitored, test = task.train, task.test, task.test
    if stage != "final":
        train, monitored = train.without_last(max(1, len(train) // 10))
    if images:
        train = train.first(images)
    return replace(task, train=train, monitored=monitored, test=monitored if stage == "search" else test)


def check(configs: Sequence[Any]) -> None:
    """Check that the data of all configurations are on this machine, or can be downloaded."""
    for name in dict.fromkeys(config.dataset for config in configs):
        load(name, 0, "final", 0, torch.device("cpu"))


@functools.lru_cache(2)
def _images(dataset: str, device: torch.device) -> Task:
    data = load_images(dataset)
    tensors = data.tensors(device)
    train = Points(tensors.train_x.flatten(1), tensors.train_y)
    test = Points(tensors.test_x.flatten(1), tensors.test_y)
    return Task(data.label, data.sha256, len(data.class_names), train, test, test)


def _table(dataset: str, split: int, device: torch.device) -> Task:
    if dataset in TABLES:
        data = load_classification(dataset)
        part = data.split(split, device=device)
        train, test = Points(part.train_x, part.train_y), Points(part.test_x, part.test_y)
        return Task(dataset, data.sha256, len(data.class_names), train, test, test)
    regression = load_uci(dataset)
    rows = regression.split(split, device=device)
    train, test = Points(rows.train_x, rows.train_y), Points(rows.test_x, rows.test_y)
    scale = float(rows.normalisation.y_std.log().sum())
    return Task(dataset, regression.sha256, 0, train, test, test, scale)


@functools.lru_cache(2)
def other_images(dataset: str, images: int, device: torch.device) -> Tensor:
    """Return test images of the other set in the units of this one, `[N, 784]`."""
    other, own = load_images(OTHER[dataset]), load_images(dataset)
    return other.tensors(device, normalisation=own.normalisation).test_x[:images].flatten(1)
