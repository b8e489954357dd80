"""The definition of an experiment: a grid of frozen configurations, and a function that runs some of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.runner.records import Record
from gilib.network import Network
from gilib.training import Checkpoint, Speed


@dataclass(frozen=True)
class Job:
    """The circumstances that the runner passes to `Experiment.run`, besides the configurations.

    Attributes:
        device: device of the training.
        checkpoint: a file for this group of configurations alone, whose folder is removed when the group is
            recorded. None: nothing is saved.
        deadline: value of `time.monotonic()` after which a training (or a chain) saves its checkpoint and
            raises `gilib.training.Paused`; None: never.
        progress: whether trainings show a progress bar.
        speed: how steps are executed.
    """

    device: torch.device
    checkpoint: Path | None
    deadline: float | None = None
    progress: bool = False
    speed: Speed = Speed()

    def chain_options(self) -> dict[str, Any]:
        """Return the arguments of `gilib.baselines.hmc` that the job determines."""
        return {"checkpoint": self.checkpoint, "deadline": self.deadline, "progress": self.progress}

    def fit_options(self, every: int = 1000) -> dict[str, Any]:
        """Return the arguments of `gilib.fit` that the job determines.

        Args:
            every: steps between checkpoints.
        """
        kept = None if self.checkpoint is None else Checkpoint(self.checkpoint, every, self.deadline)
        return {
            "checkpoint": kept,
            "speed": self.speed,
            "progress": self.progress,
        }


@dataclass(frozen=True)
class Training:
    """A training before its first step: everything that `gilib.fit` needs, and its measurements.

    Attributes:
        start: returns network and likelihood with their initial values, the same at every call. Keyword
            arguments replace those of the function of `gilib.models` that builds the network, for example
            `kernel` or `prior`.
        x: inputs, `[R, N, D]` with R = 1 if the experiment trains replicas together, else `[N, D]`.
        y: targets; `test_x` and `test_y` likewise, or None if an experiment has no test data.
        settings: further arguments of `gilib.fit`.
        measure: maps a trained network and its likelihood to the recorded metrics, by name.
        record: the record of this training; empty unless `experiments.build` filled it in.
    """

    start: Callable[..., tuple[Network, Any]]
    x: Tensor
    y: Tensor
    settings: dict[str, Any]
    measure: Callable[[Network, Any], dict[str, Any]]
    test_x: Tensor | None = None
    test_y: Tensor | None = None
    record: Record = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A grid of configurations, and the functions that run them.

    Attributes:
        about: description in one line.
        config: class of the configurations, a frozen dataclass with a field `scale`. Its name does not
            matter. The default of a new field must be what was done before, and never changes its meaning.
        configurations: yields the grid at a scale. If the grid depends on missing records, it raises a
            `RecordError` that says what to run first.
        run: trains and measures a group, `run(configs, job)`. It returns the body of a record for each
            configuration, in order: "data", "metrics", "curve"; "diverged_at" if the training broke down.
        group: key of a configuration; those with equal keys may be trained together as replicas of one
            program. None: they are trained one by one.
        check: raises an error before any work starts if something is missing, for example data.
        largest_group: largest number of configurations that are trained together; None: any number.
        scales: scales of the grid, from the smallest.
        build: returns the training of a configuration on a device, as `run` starts it. None: `gilib.fit` does
            not train the network in one call.
    """

    about: str
    config: type
    configurations: Callable[[str], Iterator[Any]]
    run: Callable[..., list[Record]]
    group: Callable[[Any], Hashable] | None = None
    check: Callable[[Sequence[Any]], None] | None = None
    largest_group: int | None = None
    scales: tuple[str, ...] = ("smoke", "reduced", "paper")
    build: Callable[[Any, torch.device], Training] | None = None

    def __post_init__(self) -> None:
        """Refuse configurations that cannot identify a record."""
        frozen = is_dataclass(self.config) and self.config.__dataclass_params__.frozen  # type: ignore[attr-defined]
        if not frozen or "scale" not in {each.name for each in fields(self.config)}:
            raise TypeError(f"{self.config.__name__} must be a frozen dataclass with a field `scale`")


def one_by_one(run: Callable[[Any, Job], Record]) -> Callable[..., list[Record]]:
    """Return an `Experiment.run` that applies a function of one configuration and the job.

    >>> one_by_one(lambda config, job: {"metrics": config})([1, 2], None)
    [{'metrics': 1}, {'metrics': 2}]
    """
    return functools.partial(_each, run)


def _each(run: Callable[[Any, Job], Record], configs: Sequence[Any], job: Job) -> list[Record]:
    return [run(config, job) for config in configs]
