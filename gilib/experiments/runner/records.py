"""Records: one JSON line for each configuration that was run, read with line numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gilib.experiments.runner.identity import filled

SCHEMA = 1
SCALES = ("smoke", "reduced", "long", "paper")  # from the smallest to the full experiment
NEEDED = {"schema": int, "id": str, "experiment": str, "scale": str, "config": dict, "metrics": dict}

Record = dict[str, Any]


class RecordError(RuntimeError):
    """A results file that cannot be read or written, or that something else has to be recorded before."""


def results_directory() -> Path:
    """Where records live: `GILIB_RESULTS`, or `results/` beside the package's source."""
    return Path(os.environ.get("GILIB_RESULTS", Path(__file__).parents[3] / "results"))


def results_file(name: str) -> Path:
    """Where the records of an experiment live."""
    return results_directory() / f"{name}.jsonl"


def recorded(name: str, kind: type | None = None) -> list[Record]:
    """All records of an experiment, in the order of their file, diverged ones included; none if never run.

    Args:
        name: the experiment, `results/<name>.jsonl`.
        kind: the class of its configurations: records from before it had all its fields get their defaults.

    Raises:
        RecordError: if a line of the file is not a record of the experiment; with its number.
    """
    path = results_file(name)
    if not path.exists():
        return []
    records = read_records(path)
    refuse_foreign(path, records, name)
    if kind is None:
        return records
    return [{**record, "config": filled(kind, record["config"])} for record in records]


def refuse_foreign(path: Path, records: Sequence[Record], name: str) -> None:
    """Raise if a record in the file of an experiment is of another one."""
    for number, record in enumerate(records, 1):
        if record["experiment"] != name:
            raise RecordError(
                f"{path}, line {number}: a record of {record['experiment']!r}, not of {name!r}; move it to "
                f"{results_file(record['experiment']).name}"
            )


def read_records(path: Path) -> list[Record]:
    """The records of a file.

    Raises:
        RecordError: if it cannot be read, or a line is cut short, foreign, of a newer schema or there twice.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error}") from error
    return parse_records(path, content)


def parse_records(path: Path, content: bytes) -> list[Record]:
    """The records in the content of a file; `path` is named in errors, see `read_records`."""
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    records = [_parse(path, number, line) for number, line in enumerate(lines, 1)]
    first: dict[str, int] = {}
    for number, record in enumerate(records, 1):
        settings = json.dumps([record[key] for key in ("experiment", "scale", "config")], sort_keys=True)
        before = min(first.setdefault(record["id"], number), first.setdefault(settings, number))
        if before != number:
            raise RecordError(
                f"{path}, line {number}: {record['id']}, or its configuration, is recorded in line {before} "
                "already; remove one of them"
            )
    return records


def diverged(record: Record) -> bool:
    """Whether the training of a record broke down.

    >>> diverged({"metrics": {}, "diverged_at": 7})
    True
    """
    return "error" in record or record.get("diverged_at") is not None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that records may hold")


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        record = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:  # neither UTF-8 nor JSON
        raise RecordError(
            f"{path}, line {number}: not a record ({error}); a write was cut short? Remove the line"
        ) from None
    if not isinstance(record, dict) or type(record.get("schema")) is not int or record["schema"] < 1:
        raise RecordError(f"{path}, line {number}: not a record of gilib")
    if record["schema"] > SCHEMA:
        raise RecordError(
            f"{path}, line {number}: schema {record['schema']} is newer than {SCHEMA}; update gilib"
        )
    wrong = [key for key, kind in NEEDED.items() if not isinstance(record.get(key), kind)]
    if wrong or record["scale"] not in SCALES:
        raise RecordError(
            f"{path}, line {number}: not a record of gilib ({', '.join(wrong) or 'scale'} missing or wrong)"
        )
    return record
