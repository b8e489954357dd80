"""Records: one JSON line for each configuration that was run, read with line numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCHEMA = 1
SCALES = ("smoke", "reduced", "paper")  # from the smallest to the full experiment
NEEDED = {"schema": int, "id": str, "experiment": str, "scale": str, "config": dict}

Record = dict[str, Any]


class RecordError(RuntimeError):
    """A results file that cannot be read or written, or that something else has to be recorded before."""


def results_directory() -> Path:
    """Where records live: `GILIB_RESULTS`, or `results/` beside the package's source."""
    return Path(os.environ.get("GILIB_RESULTS", Path(__file__).parents[2] / "results"))


def results_file(name: str) -> Path:
    """Where the records of an experiment live."""
    return results_directory() / f"{name}.jsonl"


def identity(config: Any) -> str:
    """The content hash of a frozen configuration: twelve hexadecimal digits.

    >>> from gilib.experiments.toy import ToyConfig
    >>> identity(ToyConfig()) == identity(ToyConfig(seed=0))
    True
    """
    content = {"experiment": type(config).__name__, **dataclasses.asdict(config)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def load_records(name: str) -> list[Record]:
    """All records of an experiment, in the order in which they were appended, diverged ones included.

    Args:
        name: the experiment, `results/<name>.jsonl`.

    Raises:
        RecordError: if there is no such file, or a line of it is not a record of it; with its number.
    """
    path = results_file(name)
    if not path.exists():
        raise RecordError(f"no results at {path}: run `python -m gilib.experiments run {name}`")
    records = read_records(path)
    refuse_foreign(path, records, name)
    return records


def refuse_foreign(path: Path, records: Sequence[Record], name: str) -> None:
    """Raise if a record in the file of an experiment is of another one."""
    for number, record in enumerate(records, 1):
        if record["experiment"] != name:
            raise RecordError(
                f"{path}, line {number}: a record of {record['experiment']!r}, not of {name!r}; move it to "
                f"{results_file(record['experiment']).name}"
            )


def recorded(name: str) -> list[Record]:
    """The records of an experiment; none if it was never run."""
    return load_records(name) if results_file(name).exists() else []


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


def select(
    name: str, *, cells: Sequence[str] = (), include_diverged: bool = False, **settings: Any
) -> list[Record]:
    """The recorded runs of an experiment with these settings, at the largest scale among them.

    Args:
        name: the experiment.
        cells: fields of its configuration that tell the cells of a table apart; a larger scale that has fewer
            of them, because it was only begun, does not displace a smaller one.
        include_diverged: whether to return trainings that broke down as well.
        settings: fields of its configuration and the values that they must have.

    Returns:
        The records; none if the experiment was never run with these settings.

    Raises:
        RecordError: if the file is damaged.
    """
    matching = [
        record
        for record in recorded(name)
        if (include_diverged or not diverged(record))
        and all(record["config"].get(key) == value for key, value in settings.items())
    ]
    return best_scale(matching, cells)


def best_scale(records: list[Record], cells: Sequence[str] = ()) -> list[Record]:
    """The records of the largest scale among them, or of the largest one with the most cells; see `select`.

    >>> best_scale([{"scale": "smoke"}, {"scale": "paper"}])
    [{'scale': 'paper'}]
    """
    by_scale = {scale: [record for record in records if record["scale"] == scale] for scale in SCALES}

    def count(scale: str) -> int:
        return len({tuple(record["config"].get(field) for field in cells) for record in by_scale[scale]})

    return by_scale[max(reversed(SCALES), key=count)]


def significant(value: float) -> float:
    """A number with six significant digits, as records keep it.

    >>> significant(1 / 3)
    0.333333
    """
    return float(f"{value:.6g}")


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
