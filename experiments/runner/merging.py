"""Merge the results files of several machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from experiments.registry import EXPERIMENTS
from experiments.runner.identity import record_identity
from experiments.runner.records import Record, known_identity, read_records, records_of, refuse_misfit
from experiments.runner.writing import append
from gilib.validation import check_choice


@dataclass(frozen=True)
class Merged:
    """The outcome of a merge.

    Attributes:
        added: number of records added to each experiment.
        known: number of records that existed already.
        conflicts: a line for each of these with other metrics; the existing record is kept.
    """

    added: dict[str, int]
    known: int
    conflicts: list[str]


def merge(files: Iterable[Path]) -> Merged:
    """Add the records of files to `results/`, each identity once; all files are read before any is written.

    Args:
        files: results files; one file may hold records of several experiments.

    Raises:
        RecordError: if a file or the results are damaged or of a newer schema, or have a setting that this
            version does not know.
        ValueError: if a record belongs to an unknown experiment.
    """
    incoming = []
    for path in files:
        for number, record in enumerate(read_records(path), 1):
            check_choice(record["experiment"], EXPERIMENTS, f"experiment in {path}:")
            kind, place = EXPERIMENTS[record["experiment"]].config, f"{path}, line {number}"
            refuse_misfit(place, record, kind)
            known_identity(place, record, kind)
            incoming.append((path, record))
    names = dict.fromkeys(record["experiment"] for _, record in incoming)
    kept = {_key(record): record for name in names for record in records_of(name, EXPERIMENTS[name].config)}
    new: dict[str, list[Record]] = {name: [] for name in names}
    conflicts = []
    for path, record in incoming:
        key = _key(record)
        if key not in kept:
            kept[key] = record
            new[record["experiment"]].append(record)
        elif kept[key].get("metrics") != record.get("metrics"):
            about = f"{record['experiment']} {kept[key]['id']}"
            conflicts.append(f"{about}: {path} has other metrics than the record that is kept")
    added = {name: len(append(name, records, EXPERIMENTS[name].config)) for name, records in new.items()}
    return Merged(added, len(incoming) - sum(added.values()), conflicts)


def _key(record: Record) -> tuple[str, str]:
    """Return the experiment and the identity of the configuration, without reading the record's id."""
    return record["experiment"], record_identity(record, EXPERIMENTS[record["experiment"]].config)
