"""Records: one JSON line for each configuration that was run, read with line numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.runner.identity import filled, misfits, record_identity

SCHEMA = 1
SCALES = ("smoke", "reduced", "long", "paper")  # from the smallest to the full experiment
NEEDED = {"schema": int, "id": str, "experiment": str, "scale": str, "config": dict, "metrics": dict}
ABOUT = ("experiment", "scale", "config")

Record = dict[str, Any]


class RecordError(RuntimeError):
    """A results file that cannot be read or written, or that something else has to be recorded before."""


def results_directory() -> Path:
    """Where records live: `GILIB_RESULTS` where it is set, else `results/` of the checkout."""
    return Path(os.environ.get("GILIB_RESULTS") or Path(__file__).parents[2] / "results")


def results_file(name: str) -> Path:
    """Where the records of an experiment live."""
    return results_directory() / f"{name}.jsonl"


def recorded(name: str, kind: type | None = None) -> list[Record]:
    """All records of an experiment, in the order of their file, diverged ones included; none if never run.

    Args:
        name: the experiment, `results/<name>.jsonl`.
        kind: the class of its configurations: records from before it had all its fields get their defaults.

    Raises:
        RecordError: if a line of the file is not a record of the experiment, see `refuse_foreign`; with its
            number.
    """
    path = results_file(name)
    if not path.exists():
        return []
    records = read_records(path)
    refuse_foreign(path, records, name, kind)
    if kind is None:
        return records
    return [{**record, "config": filled(kind, record["config"])} for record in records]


def refuse_foreign(path: Path, records: Sequence[Record], name: str, kind: type | None = None) -> None:
    """Raise if a record in the file of an experiment is of another one, or does not fit its class."""
    for number, record in enumerate(records, 1):
        if kind is not None:
            refuse_misfit(f"{path}, line {number}", record, kind)
        if record["experiment"] != name:
            raise RecordError(
                f"{path}, line {number}: a record of {record['experiment']!r}, not of {name!r}; move it to "
                f"{results_file(record['experiment']).name}"
            )


def refuse_misfit(place: str, record: Record, kind: type) -> None:
    """Raise if the configurations of an experiment do not have the settings of a record.

    A setting that this version does not know would be left out in silence, and the record taken for another
    one's repetition.

    Args:
        place: of the record, for the error.
        record: any.
        kind: the class of the configurations of its experiment.
    """
    unknown, missing = misfits(kind, {**record["config"], "scale": record["scale"]})
    if unknown:
        raise RecordError(
            f"{place}: this version of gilib does not know the setting {', '.join(unknown)}: "
            "update gilib, or move the line to another file"
        )
    if missing:
        raise RecordError(f"{place}: the setting {', '.join(missing)} is missing; remove the line")
    if not record["metrics"] and not diverged(record):
        raise RecordError(f"{place}: there are no metrics, and the training did not diverge; remove the line")


def known_identity(place: str, record: Record, kind: type) -> str:
    """The identity of a record's settings; an error if its id is another one, because somebody edited it.

    Args:
        place: of the record, for the error.
        record: any whose settings fit.
        kind: the class of the configurations of its experiment.
    """
    found = record_identity(record, kind)
    if record["id"] != found:
        raise RecordError(
            f"{place}: the id is {record['id']!r}, and that of its settings is {found!r}: "
            "one of them was edited; restore the line, or remove it"
        )
    return found


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
    parsed = [_parse(path, number, line) for number, line in enumerate(lines, 1)]
    first: dict[str, int] = {}
    for number, (record, settings) in enumerate(parsed, 1):
        before = min(first.setdefault(record["id"], number), first.setdefault(settings, number))
        if before != number:
            raise RecordError(
                f"{path}, line {number}: {record['id']}, or its configuration, is recorded in line {before} "
                "already; remove one of them"
            )
    return [record for record, _ in parsed]


def diverged(record: Record) -> bool:
    """Whether the training of a record broke down.

    >>> diverged({"metrics": {}, "diverged_at": 7})
    True
    """
    return "error" in record or record.get("diverged_at") is not None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that records may hold")


def _parse(path: Path, number: int, line: bytes) -> tuple[Record, str]:
    """The record of a line, and what it is about: experiment, scale and settings as text."""
    try:
        record = json.loads(line, parse_constant=_refuse_constant)
        about = json.dumps([record.get(key) for key in ABOUT], sort_keys=True) if type(record) is dict else ""
    except RecursionError:
        raise RecordError(
            f"{path}, line {number}: not a record of gilib (brackets within brackets, too deep to read)"
        ) from None
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
    timed = record["experiment"] == "benchmarks"  # whose metrics name what was compared
    if not timed and any(isinstance(value, str) for value in record["metrics"].values()):
        raise RecordError(f"{path}, line {number}: not a record of gilib (a metric is text, not a number)")
    return record, about
