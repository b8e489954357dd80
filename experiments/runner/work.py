"""The work of one group of configurations: train, measure, and make the records."""

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

from experiments.runner.experiment import Job
from experiments.runner.identity import identity
from experiments.runner.provenance import provenance, source_revision
from experiments.runner.records import Record, RecordError
from gilib.data.storage import user_cache
from gilib.files import replace_file
from gilib.linalg import FactorisationError
from gilib.persistence import CheckpointError
from gilib.training import DivergenceError, Paused, Speed

Group = tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a group: its records, or None if it was paused."""

    group: Group
    records: list[Record] | None


@dataclass(frozen=True)
class Work:
    """What is done with every group of configurations; plain data, so that it can travel to other processes.

    Attributes:
        name: of the experiment.
        run: of the experiment.
        device: "cpu", on one thread, or "cuda".
        deadline: seconds since the epoch after which trainings pause; None: never.
        progress: whether trainings show a bar.
        speed: how steps are run.
        again: whether this repeats what is recorded: checkpoints are kept in a folder of its own alone.
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

        A group that breaks down, or does not fit on the device, is halved until what fails is one
        configuration: it is recorded as diverged.
        """
        source_revision()  # of the code that was just imported
        if self.deadline is not None and time.time() > self.deadline:
            return Outcome(group, None)
        try:
            with _one_thread(self.device), self._folder(group) as folder:
                return Outcome(group, self._records(group, Path(folder)))
        except Paused:
            return Outcome(group, None)

    def _folder(self, group: Group) -> contextlib.AbstractContextManager[str | Path]:
        """Where the group's checkpoints lie."""
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
        """What the experiment measured; None if that failed for a group of several."""
        try:
            bodies = self._attempt(group, folder)
        except (DivergenceError, FactorisationError) as error:
            return [_failure(str(error))] if len(group) == 1 else None
        except torch.OutOfMemoryError as error:
            if len(group) == 1:
                raise RecordError(f"{self.name}: {group[0]} does not fit on the device: {error}") from None
            return None
        if len(bodies) != len(group):
            raise RecordError(f"{self.name} returned {len(bodies)} records for {len(group)} configurations")
        return bodies

    def _attempt(self, group: Group, folder: Path) -> list[Record]:
        """Go on from the checkpoint; afresh where that is damaged or of another training."""
        left = None if self.deadline is None else time.monotonic() + self.deadline - time.time()
        job = Job(torch.device(self.device), folder / "checkpoint", left, self.progress, self.speed)
        try:
            return self.run(group, job)
        except CheckpointError as error:
            warnings.warn(f"{self.name} starts afresh: {error}", stacklevel=2)
            shutil.rmtree(folder, ignore_errors=True)
            return self.run(group, job)


def group_identity(name: str, group: Sequence[Any]) -> str:
    """The content hash of a group of configurations of an experiment, twelve hexadecimal digits."""
    members = " ".join(identity(name, config) for config in group)
    return hashlib.sha256(members.encode()).hexdigest()[:12]


def checkpoints(name: str) -> Path:
    """Where the checkpoints of an experiment live: outside the repository, in the user's cache."""
    return user_cache() / "checkpoints" / name


def checkpoint_folder(name: str, group: Sequence[Any]) -> Path:
    """Where a group of configurations keeps its checkpoints."""
    return checkpoints(name) / group_identity(name, group)


@contextlib.contextmanager
def _stopwatch(path: Path) -> Iterator[Callable[[], float]]:
    """Seconds spent on a group so far, those before pauses included: they are written to `path` at a pause.

    What a process that was killed had spent is lost; its record says that it was resumed. A damaged file
    counts for nothing.
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
    """The body if it can be written; one that holds NaN or infinity becomes that of a diverged training.

    Raises:
        RecordError: if it holds what JSON does not know.
    """
    try:
        json.dumps(body, allow_nan=False)
    except ValueError:
        return {key: body[key] for key in ("data",) if key in body} | _failure("a metric is not finite")
    except TypeError as error:
        raise RecordError(f"{name} returned a record that is not plain data: {error}") from error
    return body


def _changed(speed: Speed) -> Record:
    """What is not as usual."""
    return {key: value for key, value in dataclasses.asdict(speed).items() if value != getattr(Speed(), key)}


def _failure(error: str) -> Record:
    return {"metrics": {}, "diverged_at": None, "error": error}


@contextlib.contextmanager
def _one_thread(device: str) -> Iterator[None]:
    """One thread on the CPU: what a training ends at depends on their number.

    Numbers too small to be normal (1e-38 in float32), with which processors compute slowly, count as zero.
    """
    threads, flushed = torch.get_num_threads(), sys.float_info.min * 0.5 == 0.0
    torch.set_num_threads(1 if device == "cpu" else threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(threads)
