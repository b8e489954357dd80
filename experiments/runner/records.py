"""Read and check records: one JSON line for each configuration that was run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.runner.identity import misfits, record_identity, with_defaults

SCHEMA = 1
SCALES = ("smoke", "reduced", "long", "paper")  # from the smallest to the complete experiment
NEEDED = {"schema": int, "id": str, "experiment": str, "scale": str, "config": dict, "metrics": dict}
ABOUT = ("experiment", "scale", "config")

Record = dict[str, Any]


class RecordError(RuntimeError):
    """A results file cannot be read or written, or other records are needed first."""


def results_directory() -> Path:
    """Return the folder of records: `GILIB_RESULTS` if it is set, else `results/` of the checkout."""
    return Path(os.environ.get("GILIB_RESULTS") or Path(__file__).parents[2] / "results")


def results_file(name: str) -> Path:
    """Return the file with the records of an experiment."""
    return results_directory() / f"{name}.jsonl"


def records_of(name: str, kind: type | None = None) -> list[Record]:
    """Return all records of an experiment in the order of their file, including diverged ones; maybe none.

    Args:
        name: name of the experiment, whose file is `results/<name>.jsonl`.
        kind: class of its configurations; fields that older records lack get their defaults.

    Raises:
        RecordError: if a line is not a record of the experiment, see `refuse_foreign`; with its number.
    """
    path = results_file(name)
    if not path.exists():
        return []
    records = read_records(path)
    refuse_foreign(path, records, name, kind)
    if kind is None:
        return records
    scaled = [(record, {**record["config"], "scale": record["scale"]}) for record in records]
    return [{**record, "config": with_defaults(kind, config)} for record, config in scaled]


def by_identity(name: str, kind: type) -> dict[str, Record]:
    """Return all records of an experiment, like `records_of`, by the identity of their configurations.

    Raises:
        RecordError: also if the id of a record is not that identity.
    """
    lines = enumerate(records_of(name, kind), 1)
    return {known_identity(f"{results_file(name)}, line {k}", record, kind): record for k, record in lines}


def refuse_foreign(path: Path, records: Sequence[Record], name: str, kind: type | None = None) -> None:
    """Check that all records in the file of an experiment belong to it and fit its class."""
    for number, record in enumerate(records, 1):
        if kind is not None:
            refuse_misfit(f"{path}, line {number}", record, kind)
        if record["experiment"] != name:
            raise RecordError(
                f"{path}, line {number}: a record of {record['experiment']!r}, not of {name!r}; move it to "
                f"{results_file(record['experiment']).name}"
            )


def refuse_misfit(place: str, record: Record, kind: type) -> None:
    """Check that the configurations of an experiment have exactly the settings of a record.

    A setting that this version does not know would otherwise be ignored, and the record would count as a
    repetition of another one.

    Args:
        place: place of the record, for the error.
        record: the record.
        kind: class of the configurations of its experiment.
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
    """Return the identity of a record's settings; raise an error if it is not the record's id.

    Args:
        place: place of the record, for the error.
        record: a record whose settings fit.
        kind: class of the configurations of its experiment.
    """
    found = record_identity(record, kind)
    if record["id"] != found:
        raise RecordError(
            f"{place}: the id is {record['id']!r}, and that of its settings is {found!r}: "
            "one of them was edited; restore the line, or remove it"
        )
    return found


def read_records(path: Path) -> list[Record]:
    """Read the records of a file.

    Raises:
        RecordError: if the file cannot be read, or a line is cut short, foreign, duplicate or of a newer
            schema.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error}") from error
    return parse_records(path, content)


def parse_records(path: Path, content: bytes) -> list[Record]:
    """Parse the records in the content of a file; errors name `path`, see `read_records`."""
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
    """Return whether the training of a record broke down.

    >>> diverged({"metrics": {}, "diverged_at": 7})
    True
    """
    return "error" in record or record.get("diverged_at") is not None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that records may hold")


def _parse(path: Path, number: int, line: bytes) -> tuple[Record, str]:
    """Return the record of a line, and its experiment, scale and settings as text."""
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
    timed = record["experiment"] == "benchmarks"  # its metrics include names of the compared code
    if not timed and any(isinstance(value, str) for value in record["metrics"].values()):
        raise RecordError(f"{path}, line {number}: not a record of gilib (a metric is text, not a number)")
    return record, about
