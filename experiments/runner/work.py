"""The work on one group of configurations: train, measure, and compose the records."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from experiments.places import user_cache
from experiments.runner.experiment import Job
from experiments.runner.identity import identity
from experiments.runner.provenance import provenance, source_revision
from experiments.runner.records import Record, RecordError
from gilib.files import replace_file
from gilib.linalg import FactorisationError
from gilib.persistence import CheckpointError
from gilib.training import DivergenceError, Paused, Speed

Group = tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a group: its records, or None if it was paused."""

    group: Group
    records: list[Record] | None


@dataclass(frozen=True)
class Work:
    """The work on every group of configurations, as plain data that can be sent to other processes.

    Attributes:
        name: name of the experiment.
        run: `Experiment.run` of the experiment.
        device: "cpu", with one thread, or "cuda".
        deadline: time, in seconds since the epoch, after which trainings pause; None: never.
        progress: whether trainings show a progress bar.
        speed: how steps are executed.
        again: whether this repeats recorded work; checkpoints then lie in a temporary folder.
    """

    name: str
    run: Callable[..., list[Record]]
    device: str = "cpu"
    deadline: float | None = None
    progress: bool = False
    speed: Speed = Speed()
    again: bool = False

    def __call__(self, group: Group) -> Outcome:
        """Train and measure a group.

        A group that breaks down, or does not fit on the device, is halved until a single configuration fails,
        which is recorded as diverged.
        """
        source_revision()  # store it now: files may change while the training runs
        if self.deadline is not None and time.time() > self.deadline:
            return Outcome(group, None)
        try:
            with _one_thread(self.device), self._folder(group) as folder:
                return Outcome(group, self._records(group, Path(folder)))
        except Paused:
            return Outcome(group, None)

    def _folder(self, group: Group) -> contextlib.AbstractContextManager[str | Path]:
        """Return the folder of the group's checkpoints."""
        if self.again:
            return tempfile.TemporaryDirectory(prefix="gilib-")
        return contextlib.nullcontext(checkpoint_folder(self.name, group))

    def _records(self, group: Group, folder: Path) -> list[Record]:
        resumed = {"resumed": True} if folder.exists() and not self.again else {}
        with _stopwatch(folder / "seconds") as seconds:
            bodies = self._bodies(group, folder)
        if bodies is None:
            halves = group[: len(group) // 2], group[len(group) // 2 :]
            folders = [folder / group_identity(self.name, half) for half in halves]
            return [record for pair in zip(halves, folders, strict=True) for record in self._records(*pair)]
        about = {
            **resumed,
            "seconds": round(seconds(), 1),
            "group": len(group),
            "provenance": provenance(self.device) | _changed(self.speed),
        }
        return [
            {**_head(self.name, config), **_checked(self.name, body), **about}
            for config, body in zip(group, bodies, strict=True)
        ]

    def _bodies(self, group: Group, folder: Path) -> list[Record] | None:
        """Return the bodies of records; None if a group of several configurations failed."""
        try:
            bodies = self._attempt(group, folder)
        except (DivergenceError, FactorisationError) as error:
            return [_failure(str(error))] if len(group) == 1 else None
        except torch.OutOfMemoryError as error:
            if len(group) == 1:
                raise RecordError(f"{self.name}: {group[0]} does not fit on the device: {error}") from None
            return None
        if not isinstance(bodies, list) or len(bodies) != len(group):
            raise RecordError(
                f"{self.name} must return a list of {len(group)} records, one for each configuration, got "
                f"{bodies!r:.80}: `one_by_one(run)` makes it of a function of one configuration"
            )
        return bodies

    def _attempt(self, group: Group, folder: Path) -> list[Record]:
        """Resume from the checkpoint; start again if it is damaged or belongs to another training."""
        left = None if self.deadline is None else time.monotonic() + self.deadline - time.time()
        job = Job(torch.device(self.device), folder / "checkpoint", left, self.progress, self.speed)
        try:
            return self.run(group, job)
        except CheckpointError as error:
            warnings.warn(f"{self.name} starts afresh: {error}", stacklevel=2)
            shutil.rmtree(folder, ignore_errors=True)
            return self.run(group, job)


def group_identity(name: str, group: Sequence[Any]) -> str:
    """Return the content hash of a group of configurations of an experiment, twelve hexadecimal digits."""
    members = " ".join(identity(name, config) for config in group)
    return hashlib.sha256(members.encode()).hexdigest()[:12]


def checkpoints(name: str) -> Path:
    """Return the folder of an experiment's checkpoints, in the user's cache."""
    return user_cache() / "checkpoints" / name


def checkpoint_folder(name: str, group: Sequence[Any]) -> Path:
    """Return the folder of a group's checkpoints."""
    return checkpoints(name) / group_identity(name, group)


@contextlib.contextmanager
def _stopwatch(path: Path) -> Iterator[Callable[[], float]]:
    """Measure the seconds spent on a group, including those before pauses, which `path` stores.

    The time of a killed process is lost; the record says that the training was resumed. A damaged file counts
    as zero seconds.
    """
    before, start = 0.0, time.perf_counter()
    with contextlib.suppress(OSError, ValueError):
        before = float(path.read_text())

    def seconds() -> float:
        return before + time.perf_counter() - start

    try:
        yield seconds
    except Paused:
        replace_file(path, f"{seconds():.3f}".encode())
        raise


def _head(name: str, config: Any) -> Record:
    settings = dataclasses.asdict(config)
    return {
        "id": identity(name, config),
        "experiment": name,
        "scale": settings.pop("scale"),
        "config": settings,
    }


def _checked(name: str, body: Record) -> Record:
    """Return the body of a record; one with NaN or infinity becomes that of a diverged training.

    Raises:
        RecordError: if JSON cannot represent it.
    """
    try:
        json.dumps(body, allow_nan=False)
    except ValueError:
        return {key: body[key] for key in ("data",) if key in body} | _failure("a metric is not finite")
    except TypeError as error:
        raise RecordError(f"{name} returned a record that is not plain data: {error}") from error
    return body


def _changed(speed: Speed) -> Record:
    """Return the options of `speed` that differ from their defaults."""
    return {key: value for key, value in dataclasses.asdict(speed).items() if value != getattr(Speed(), key)}


def _failure(error: str) -> Record:
    return {"metrics": {}, "diverged_at": None, "error": error}


@contextlib.contextmanager
def _one_thread(device: str) -> Iterator[None]:
    """Use one thread on the CPU, because results of a training depend on the number of threads.

    Denormal numbers (below 1e-38 in float32), with which processors are slow, count as zero.
    """
    threads, flushed = torch.get_num_threads(), sys.float_info.min * 0.5 == 0.0
    torch.set_num_threads(1 if device == "cpu" else threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(threads)
