"""What an experiment is: a grid of frozen configurations, and what a group of them records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.runner.records import Record
from gilib.network import Network
from gilib.training import Checkpoint, Speed


@dataclass(frozen=True)
class Job:
    """What the runner hands to `Experiment.run` beside the configurations.

    Attributes:
        device: where to train.
        checkpoint: a file of this group of configurations alone; its folder is removed with all that it holds
            when the group is recorded. None: nothing is kept.
        deadline: the `time.monotonic()` after which a training (or a chain) saves its checkpoint and raises
            `gilib.training.Paused`; None: never.
        progress: whether trainings show a bar.
        speed: how steps are run.
    """

    device: torch.device
    checkpoint: Path | None
    deadline: float | None = None
    progress: bool = False
    speed: Speed = Speed()

    def chain_options(self) -> dict[str, Any]:
        """What Markov chains take from the job, as arguments of `gilib.baselines.hmc`."""
        return {"checkpoint": self.checkpoint, "deadline": self.deadline, "progress": self.progress}

    def fit_options(self, every: int = 1000) -> dict[str, Any]:
        """What trainings take from the job, as arguments of `gilib.fit`.

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
    """What an experiment trains, before the first step: all that `gilib.fit` takes, and how it is measured.

    Attributes:
        start: network and likelihood where they start, the same at every call. Keyword arguments take the
            place of those of the function of `gilib.models` that makes the network, for example `kernel` or
            `prior`.
        x: inputs, `[R, N, D]` where replicas train together, one here, else `[N, D]`.
        y: targets; `test_x` and `test_y` likewise, None where an experiment has none.
        settings: further arguments of `gilib.fit`.
        measure: of a trained network and its likelihood the metrics that are recorded, by name.
        record: what is recorded of it; empty while nobody has asked for it.
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
    """A grid of configurations and what they record.

    Attributes:
        about: one line.
        config: the class of its configurations: a frozen dataclass with a field `scale`. Its name means
            nothing; a new field has a default that is what was done before, and never changes its meaning.
        configurations: the grid at a scale. It raises a `RecordError` that says what to run first if it
            depends on records that are missing.
        run: trains and measures a group, `run(configs, job)`; returns a record body for each configuration,
            in order: "data", "metrics", "curve"; "diverged_at" if that training broke down.
        group: configurations with equal keys may be trained together as replicas of one program; None: one by
            one.
        check: raises before any work starts if something is missing, for example data.
        largest_group: more configurations than this are not trained together; None: any number.
        scales: those that the grid has, from the smallest.
        build: of one configuration and a device the training, which `run` then goes on with; None: it has no
            network that `gilib.fit` trains in one go.
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


def one_by_one(run: Callable[[Any, Job], Record]) -> Callable[..., list[Record]]:
    """`Experiment.run` made of a function of one configuration and the job.

    >>> one_by_one(lambda config, job: {"metrics": config})([1, 2], None)
    [{'metrics': 1}, {'metrics': 2}]
    """
    return functools.partial(_each, run)


def _each(run: Callable[[Any, Job], Record], configs: Sequence[Any], job: Job) -> list[Record]:
    return [run(config, job) for config in configs]
