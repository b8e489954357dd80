"""Records: one JSON line for each configuration that was run, appended whole or not at all."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

SCHEMA = 1
SCALES = ("smoke", "reduced", "paper")  # from the smallest to the full experiment

Record = dict[str, Any]


class RecordError(RuntimeError):
    """A results file that cannot be read or written."""


def results_directory() -> Path:
    """Where records live: `GILIB_RESULTS`, or `results/` beside the package's source."""
    return Path(os.environ.get("GILIB_RESULTS", Path(__file__).parents[2] / "results"))


def identity(config: Any) -> str:
    """The content hash of a frozen configuration: twelve hexadecimal digits.

    >>> from gilib.experiments.toy import ToyConfig
    >>> identity(ToyConfig()) == identity(ToyConfig(seed=0))
    True
    """
    content = {"experiment": type(config).__name__, **dataclasses.asdict(config)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def provenance() -> Record:
    """Versions, hardware and revision of the code that is running."""
    return {
        "gilib": _package_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else _processor(),
        "threads": torch.get_num_threads(),
        "revision": source_revision(),
    }


def append(name: str, record: Record) -> None:
    """Append one record to `results/<name>.jsonl`: one write to a file opened for appending, then a sync.

    Raises:
        RecordError: if the file cannot be written.
    """
    path = results_directory() / f"{name}.jsonl"
    line = json.dumps({"schema": SCHEMA, **record}, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error}") from error
    if written != len(line.encode()):
        raise RecordError(
            f"{path}: only {written} of {len(line.encode())} bytes of the last record were written"
        )


def load_records(name: str) -> list[Record]:
    """All records of an experiment, in the order in which they were appended.

    Args:
        name: the experiment, `results/<name>.jsonl`.

    Raises:
        RecordError: if there is no such file, or a line of it is not a record; with its number.
    """
    path = results_directory() / f"{name}.jsonl"
    if not path.exists():
        raise RecordError(f"no results at {path}: run `python -m gilib.experiments run {name}`")
    return [_parse(path, number, line) for number, line in enumerate(path.read_text().splitlines(), 1)]


def select(name: str, **settings: Any) -> list[Record]:
    """The recorded runs of an experiment with these settings, at the largest scale among them.

    Args:
        name: the experiment.
        settings: fields of its configuration and the values that they must have.

    Returns:
        The records; none if the experiment was never run with these settings.

    Raises:
        RecordError: if the file is damaged.
    """
    if not (results_directory() / f"{name}.jsonl").exists():
        return []
    matching = [
        record
        for record in load_records(name)
        if all(record["config"].get(key) == value for key, value in settings.items())
    ]
    return best_scale(matching)


def best_scale(records: list[Record]) -> list[Record]:
    """The records of the largest scale among them.

    >>> best_scale([{"scale": "smoke"}, {"scale": "paper"}])
    [{'scale': 'paper'}]
    """
    largest = max((SCALES.index(record["scale"]) for record in records), default=0)
    return [record for record in records if record["scale"] == SCALES[largest]]


def _parse(path: Path, number: int, line: str) -> Record:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise RecordError(
            f"{path}, line {number}: not a record ({error}); a write was cut short? Remove the line"
        ) from None
    if not isinstance(record, dict) or "schema" not in record:
        raise RecordError(f"{path}, line {number}: not a record of gilib")
    if record["schema"] > SCHEMA:
        raise RecordError(
            f"{path}, line {number}: schema {record['schema']} is newer than {SCHEMA}; update gilib"
        )
    return record


def _package_version() -> str:
    from gilib import __version__

    return __version__


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"


@functools.cache
def source_revision() -> str:
    """The commit of the source when first asked for, marked + if files of the package differ from it."""
    here = Path(__file__).parents[2]
    try:
        commit = _git(here, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git(here, "status", "--porcelain", "-uno", "--", "gilib") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
