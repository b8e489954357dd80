"""Data of the experiments with BALI: for training, for looks on the way, and to measure with at the end."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gilib.data import load_classification, load_images, load_uci
from gilib.validation import check_choice

TABLES = ("spambase", "telescope", "diabetes")
IMAGES = ("mnist-500", "mnist", "fashion-mnist")
OTHER = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}  # what is out of distribution
STAGES = ("search", "curve", "final")


@dataclass(frozen=True)
class Points:
    """Inputs `[N, D]`, and targets `[N, 1]` or labels `[N]`."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        """N."""
        return len(self.x)

    def first(self, count: int) -> Points:
        """The first of them."""
        return Points(self.x[:count], self.y[:count])

    def without_last(self, count: int) -> tuple[Points, Points]:
        """All but the last, and the last."""
        return Points(self.x[:-count], self.y[:-count]), Points(self.x[-count:], self.y[-count:])


@dataclass(frozen=True)
class Task:
    """One split of a set, normalised by its training data.

    Attributes:
        name: what results on it are called.
        sha256: of the whole set.
        classes: how many; 0: regression.
        train: what is trained on.
        monitored: what is measured on the way.
        test: what is measured at the end.
        log_scale: to subtract from log-likelihoods for original units; of regression.
    """

    name: str
    sha256: str
    classes: int
    train: Points
    monitored: Points
    test: Points
    log_scale: float = 0.0


def load(dataset: str, split: int, stage: str, images: int, device: torch.device) -> Task:
    """The data of a training.

    The last tenth of the training points is held out at the stages "search", which measures on it, and
    "curve", which looks at it and measures on test points. At the stage "final" nothing is held out, and
    looks are at test points: settings are frozen by then.

    Args:
        dataset: of `TABLES`, of `IMAGES`, or a set of `gilib.data.load_uci`.
        split: its number; there is one of images.
        stage: one of `STAGES`.
        images: how many of the training images, from the first; 0: all that there are.
        device: of the data.
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
    """Raise unless the data of all configurations are here, or can be fetched."""
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
    """Test images of the other set, in the units of this one, `[N, 784]`."""
    other, own = load_images(OTHER[dataset]), load_images(dataset)
    return other.tensors(device, normalisation=own.normalisation).test_x[:images].flatten(1)
