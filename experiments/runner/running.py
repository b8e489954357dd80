"""Run the configurations of an experiment that are not recorded yet, or repeat those that are."""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from tqdm import tqdm

from experiments.registry import EXPERIMENTS
from experiments.runner import cluster, local
from experiments.runner.claims import Claims
from experiments.runner.groups import make_groups, select_configs
from experiments.runner.identity import identity
from experiments.runner.records import Record, RecordError, by_identity, diverged, results_file
from experiments.runner.work import Group, Outcome, Work, checkpoint_folder, checkpoints
from experiments.runner.writing import append, check_writable
from gilib.data import DataError
from gilib.training import Speed
from gilib.validation import check_choice, check_count, check_positive

DEVICES = ("auto", "cpu", "cuda")
PLACES = ("local", "ray")


@dataclass(frozen=True)
class Placement:
    """The place and the speed of a run.

    Attributes:
        device: "cpu", "cuda", or "auto" for cuda if it is available.
        where: "local", or "ray" for a cluster.
        jobs: number of processes on this machine, with one thread each on the CPU.
        gpus: number of GPUs for a task on a cluster.
        speed: how steps are executed.
    """

    device: str = "auto"
    where: str = "local"
    jobs: int = 1
    gpus: float = 1.0
    speed: Speed = Speed()

    def __post_init__(self) -> None:
        """Check the settings."""
        check_choice(self.device, DEVICES, "device")
        check_choice(self.where, PLACES, "place")
        check_count(self.jobs, "jobs")
        check_positive(self.gpus, "gpus")


@dataclass(frozen=True)
class RunSummary:
    """The outcome of a run.

    Attributes:
        added: number of records added.
        diverged: number of these that diverged.
        left: number of configurations that are still to be run.
        elsewhere: number of these on which another runner with this cache works.
    """

    added: int
    diverged: int
    left: int
    elsewhere: int = 0


@dataclass(frozen=True)
class Progress:
    """The progress of an experiment at a scale: numbers of configurations, or a note why they are unknown."""

    name: str
    scale: str
    recorded: int = 0
    diverged: int = 0
    total: int = 0
    note: str = ""


def pending(name: str, scale: str, only: Sequence[str] = ()) -> tuple[list[Any], int]:
    """Return the configurations of an experiment that are not recorded, and the number of all."""
    configs, done = select_configs(EXPERIMENTS[name], scale, only), _by_identity(name)
    return [config for config in configs if identity(name, config) not in done], len(configs)


def _by_identity(name: str) -> dict[str, Record]:
    return by_identity(name, EXPERIMENTS[name].config)


def _known(name: str) -> Callable[[], Container[str]]:
    """Return a function that gives the recorded identities, and reads the file again if it was replaced."""

    @functools.lru_cache(1)
    def read(inode: int, changed: int) -> Container[str]:
        return frozenset(_by_identity(name))

    def known() -> Container[str]:
        path = results_file(name)
        return read(path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else ()

    return known


def run_experiment(
    name: str,
    scale: str = "reduced",
    place: Placement | None = None,
    *,
    only: Sequence[str] = (),
    time_limit: float | None = None,
) -> RunSummary:
    """Run what is missing, and append the records of every group of configurations when it is done.

    Groups on which another runner with the same cache works are left out.

    Args:
        name: name of the experiment.
        scale: one of the experiment's scales.
        place: where to run; by default in this process.
        only: filters "field=value".
        time_limit: minutes after which trainings save their checkpoints and stop.

    Raises:
        ValueError: if arguments do not fit; raised before any work starts.
        RecordError, DataError: if results cannot be read or written, or data are missing; raised before any
            work starts.
    """
    check_choice(name, EXPERIMENTS, "experiment")
    place = place or Placement()
    if time_limit is not None:
        check_positive(time_limit, "time_limit")
    deadline = None if time_limit is None else time.time() + 60.0 * time_limit
    if place.where == "local":
        device_of(place)
    todo, total = pending(name, scale, only)
    if not todo:
        return RunSummary(0, 0, 0)
    check_writable(name, checkpoints(name))
    experiment = EXPERIMENTS[name]
    if experiment.check is not None:
        experiment.check(todo)
    with cluster.connected(place.jobs) if place.where == "ray" else nullcontext():
        work = Work(name, experiment.run, device_of(place), deadline, speed=place.speed)
        groups = make_groups(experiment, todo)
        claims, place = Claims(name, groups, _known(name)), replace(place, jobs=min(place.jobs, len(groups)))
        with closing(claims), closing(_outcomes(work, claims, place)) as outcomes:
            return _record(name, claims, outcomes, len(todo), total)


def _record(name: str, claims: Claims, outcomes: Iterator[Outcome], todo: int, total: int) -> RunSummary:
    """Append the records of each outcome, then remove its checkpoints."""
    added = broken = left = 0
    with tqdm(total=total, initial=total - todo, desc=name, unit="run") as bar:
        for outcome in outcomes:
            if outcome.records is None:
                left += len(outcome.group)
            else:
                new = append(name, outcome.records, EXPERIMENTS[name].config)
                shutil.rmtree(checkpoint_folder(name, outcome.group), ignore_errors=True)
                added += len(new)
                broken += sum(map(diverged, new))
                bar.update(len(outcome.group))
            claims.release(outcome.group)
    elsewhere = claims.open(claims.left)
    return RunSummary(added, broken, left + elsewhere, elsewhere)


def repeat(
    name: str, scale: str = "reduced", place: Placement | None = None, *, only: Sequence[str] = ()
) -> Iterator[tuple[Record, Record]]:
    """Run recorded configurations again, without changing records or checkpoints.

    Args:
        name: name of the experiment.
        scale: one of the experiment's scales.
        place: where to run; by default in this process.
        only: filters "field=value".

    Yields:
        The existing record and the new one, as soon as its group is done.

    Raises:
        ValueError, RecordError, DataError: for the reasons of `run_experiment`, or if nothing is recorded.
    """
    check_choice(name, EXPERIMENTS, "experiment")
    place, experiment, records = place or Placement(), EXPERIMENTS[name], _by_identity(name)
    todo = [each for each in select_configs(experiment, scale, only) if identity(name, each) in records]
    if not todo:
        raise RecordError(f"nothing of this is recorded in {results_file(name)}: run it without --again")
    if experiment.check is not None:
        experiment.check(todo)
    with cluster.connected(place.jobs) if place.where == "ray" else nullcontext():
        groups = make_groups(experiment, todo)
        alone = len(groups) == 1  # a single training shows its own progress bar
        work = Work(name, experiment.run, device_of(place), progress=alone, speed=place.speed, again=True)
        bar = tqdm(total=len(todo), desc=name, unit="run", disable=alone)
        with bar, closing(_outcomes(work, groups, place)) as outcomes:
            for outcome in outcomes:
                bar.update(len(outcome.group))
                for record in outcome.records or []:
                    yield records[record["id"]], record


def device_of(place: Placement) -> str:
    """Return the device to use; raise an error if the requested kind does not exist."""
    available = cluster.has_accelerators() if place.where == "ray" else torch.cuda.is_available()
    if place.device == "cuda" and not available:
        raise ValueError("no CUDA device was found: ask for --device cpu")
    device = "cuda" if available and place.device != "cpu" else "cpu"
    if device == "cpu" and place.speed.arithmetic == "tf32":
        raise ValueError("TF32 needs a CUDA device, and this would run on the CPU")
    return device


def _outcomes(work: Work, groups: Iterable[Group], place: Placement) -> Generator[Outcome, None, None]:
    """Return a generator of the outcomes of all groups."""
    if place.where == "ray":
        return cluster.on_ray(work, groups, place.gpus if work.device == "cuda" else 0.0)
    if place.jobs == 1:
        return local.in_process(work, groups)
    return local.in_processes(work, groups, place.jobs)


def status() -> list[Progress]:
    """Return the progress of every experiment at every scale.

    Raises:
        RecordError: if a results file is damaged.
    """
    found = {name: _by_identity(name) for name in EXPERIMENTS}
    return [_progress(name, scale, found[name]) for name in found for scale in EXPERIMENTS[name].scales]


def _progress(name: str, scale: str, records: Mapping[str, Record]) -> Progress:
    try:
        configs = select_configs(EXPERIMENTS[name], scale)
    except (RecordError, DataError) as error:
        return Progress(name, scale, note=str(error))
    found = [records[key] for key in (identity(name, config) for config in configs) if key in records]
    return Progress(name, scale, len(found), sum(map(diverged, found)), len(configs))
