"""Run the configurations of an experiment that are not recorded yet."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from gilib.experiments import toy, truth
from gilib.experiments.records import (
    SCALES,
    Record,
    RecordError,
    append,
    identity,
    load_records,
    provenance,
    results_directory,
    source_revision,
)
from gilib.linalg import FactorisationError
from gilib.training import DivergenceError
from gilib.validation import choice, count


@dataclass(frozen=True)
class Experiment:
    """A grid of configurations and what one of them records.

    Attributes:
        about: one line.
        configurations: the grid at a scale.
        run: trains and measures one configuration; called with the path of a checkpoint.
    """

    about: str
    configurations: Callable[[str], Iterator[Any]]
    run: Callable[..., Record]


EXPERIMENTS: dict[str, Experiment] = {
    "toy": Experiment("Table 2 and Fig. 1: methods on the toy problem", toy.table_2, toy.run),
    "toy_inducing": Experiment("Fig. A2: the number of inducing points", toy.figure_a2, toy.run),
    "reproduction": Experiment("The TensorFlow reproduction and its sweeps", toy.reproduction, toy.run),
    "toy_hmc": Experiment("Hamiltonian Monte Carlo on the toy problem", truth.configurations, truth.run),
}


def pending(name: str, scale: str) -> tuple[list[Any], int]:
    """Configurations of an experiment that are not recorded, and how many there are in all."""
    configurations = list(dict.fromkeys(EXPERIMENTS[name].configurations(scale)))
    done = {record["id"] for record in recorded(name)}
    return [config for config in configurations if identity(config) not in done], len(configurations)


def recorded(name: str) -> list[Record]:
    """The records of an experiment; none if it was never run."""
    exists = (results_directory() / f"{name}.jsonl").exists()
    return load_records(name) if exists else []


def run_experiment(name: str, scale: str = "reduced", jobs: int = 1, time_limit: float | None = None) -> int:
    """Run what is missing, one process and one thread each, and append every record when it is done.

    Args:
        name: of the experiment.
        scale: "smoke", "reduced" or "paper".
        jobs: processes.
        time_limit: minutes after which no configuration is started any more.

    Returns:
        How many records were added.

    Raises:
        RecordError: when all is done, if trainings broke down; what the others recorded is kept.
    """
    choice(name, EXPERIMENTS, "experiment")
    choice(scale, SCALES, "scale")
    count(jobs, "jobs")
    todo, total = pending(name, scale)
    deadline = time.monotonic() + 60.0 * (time_limit or 1e9)
    added = 0
    failures: list[str] = []
    context = multiprocessing.get_context("spawn")
    with (
        tqdm(total=total, initial=total - len(todo), desc=name, unit="run") as bar,
        ProcessPoolExecutor(jobs, mp_context=context, initializer=_prepare_worker) as pool,
    ):
        waiting = iter(todo)
        running = {pool.submit(_record, name, config) for config in itertools.islice(waiting, jobs)}
        while running:
            done = next(as_completed(running))
            running.remove(done)
            try:
                append(name, done.result())
                added += 1
            except (FactorisationError, DivergenceError) as error:
                failures.append(str(error))
            bar.update()
            following = next(waiting, None) if time.monotonic() < deadline else None
            if following is not None:
                running.add(pool.submit(_record, name, following))
    if failures:
        raise RecordError(f"{added} records added, {len(failures)} runs failed: {'; '.join(failures)}")
    return added


def _prepare_worker() -> None:
    """One thread; and the revision of the code that was just imported."""
    torch.set_num_threads(1)
    source_revision()


def _record(name: str, config: Any) -> Record:
    checkpoint = checkpoint_path(name, config)
    start = time.perf_counter()
    result = EXPERIMENTS[name].run(config, checkpoint=str(checkpoint))
    seconds = round(time.perf_counter() - start, 1)
    checkpoint.unlink(missing_ok=True)
    settings = dataclasses.asdict(config)
    head = {"id": identity(config), "experiment": name, "scale": settings.pop("scale"), "config": settings}
    return {**head, **result, "seconds": seconds, "provenance": provenance()}


def checkpoint_path(name: str, config: Any) -> Path:
    """Where a configuration keeps its checkpoint: outside the repository, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return cache / "gilib" / "checkpoints" / name / f"{identity(config)}.checkpoint"


def status() -> list[tuple[str, str, int, int]]:
    """(experiment, scale, recorded, total) of everything."""
    rows = []
    for name in EXPERIMENTS:
        for scale in SCALES:
            missing, total = pending(name, scale)
            rows.append((name, scale, total - len(missing), total))
    return rows


__all__ = ["EXPERIMENTS", "Experiment", "RecordError", "pending", "recorded", "run_experiment", "status"]
