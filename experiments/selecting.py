"""Select the records that chapters and the report show, at the best scale."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.registry import EXPERIMENTS
from experiments.runner.groups import select_configs
from experiments.runner.identity import identity, record_identity
from experiments.runner.records import (
    SCALES,
    Record,
    RecordError,
    diverged,
    records_of,
    results_directory,
    results_file,
)
from gilib.data import DataError
from gilib.validation import check_choice


def load_records(name: str) -> list[Record]:
    """Return all records of an experiment in the order of their file, including diverged ones.

    Args:
        name: name of the experiment, whose file is `results/<name>.jsonl`.

    Raises:
        RecordError: if there is no such file, or a line is not a record of the experiment; with its number.
    """
    path = results_file(name)
    if not path.exists():
        raise RecordError(f"no results at {path}: run `python -m experiments run {name}`")
    return recorded(name)


def recorded(name: str) -> list[Record]:
    """Return all records of an experiment, like `load_records`, but none if it was never run."""
    return records_of(name, EXPERIMENTS[name].config if name in EXPERIMENTS else None)


def select(
    name: str, *, cells: Sequence[str] = (), each: str = "", include_diverged: bool = False, **settings: Any
) -> list[Record]:
    """Return the records of an experiment with these settings, at the largest scale among them.

    Args:
        name: name of the experiment.
        cells: fields of the configuration that identify a cell of a table. A larger scale with fewer cells,
            because it is unfinished, does not replace a smaller one.
        each: a field for whose values the scale is chosen separately, see `scales_of`.
        include_diverged: whether to include trainings that broke down.
        settings: fields of the configuration and their required values; `scale` is the record's.

    Returns:
        The records; none if the experiment was never run with these settings.

    Raises:
        RecordError: if the file is damaged.
        ValueError: if there is no such experiment, or it has no such field.
    """
    known = {*EXPERIMENTS, *(path.stem for path in results_directory().glob("*.jsonl"))}
    check_choice(name, sorted(known), "experiment")
    if name in EXPERIMENTS:
        fields = [entry.name for entry in dataclasses.fields(EXPERIMENTS[name].config)]
        for field in (*settings, *cells, *([each] if each else ())):
            check_choice(field, fields, f"field of {name}")

    def fits(record: Record) -> bool:
        found = record["config"] | {"scale": record["scale"]}
        return all(found.get(key) == value for key, value in settings.items())

    matching = [r for r in recorded(name) if (include_diverged or not diverged(r)) and fits(r)]
    if not each:
        return best_scale(matching, cells)
    scales = scales_of(name, each, cells)
    return [record for record in matching if record["scale"] == scales[record["config"][each]]]


def scales_of(name: str, each: str, cells: Sequence[str] = ()) -> dict[Any, str]:
    """Return the scale at which to show each value of a field, for example each data set.

    This is the largest complete scale: all of the grid's trainings with this value are recorded, diverged or
    not, and no cell of another scale is missing. If no scale is complete, it is the largest of those with the
    most cells; only then may it be "smoke".

    Args:
        name: name of the experiment.
        each: the field.
        cells: further fields that identify a cell of a table.
    """
    by_value: dict[Any, list[Record]] = {}
    for record in recorded(name):
        by_value.setdefault(record["config"][each], []).append(record)
    complete = _complete(name, each)
    return {
        value: max(
            _most_cells(found, cells), key=lambda scale: ((value, scale) in complete, SCALES.index(scale))
        )
        for value, found in by_value.items()
    }


def grids(name: str) -> dict[str, list[tuple[Mapping[str, Any], bool]]]:
    """Return, by scale, the settings of every training of an experiment and whether it is recorded.

    Diverged trainings count as recorded. The scale "smoke" is left out, and so are scales whose grid depends
    on missing records.

    Args:
        name: name of the experiment.
    """
    experiment, found = EXPERIMENTS[name], {}
    done = {record_identity(record, experiment.config) for record in recorded(name)}
    for scale in set(experiment.scales) - {"smoke"}:
        with contextlib.suppress(RecordError, DataError):
            grid = select_configs(experiment, scale)
            found[scale] = [(vars(config), identity(name, config) in done) for config in grid]
    return found


def _complete(name: str, each: str) -> set[tuple[Any, str]]:
    """Return the pairs (value of a field, scale) for which everything is recorded."""
    trainings = [(row[each], scale, done) for scale, grid in grids(name).items() for row, done in grid]
    missing = {(value, scale) for value, scale, done in trainings if not done}
    return {(value, scale) for value, scale, _ in trainings} - missing


def best_scale(records: list[Record], cells: Sequence[str] = ()) -> list[Record]:
    """Return the records of the largest scale among those with the most cells; see `select`.

    >>> best_scale([{"scale": "smoke"}, {"scale": "paper"}])
    [{'scale': 'paper'}]
    """
    best = max(_most_cells(records, cells), key=SCALES.index, default="")
    return [record for record in records if record["scale"] == best]


def _most_cells(records: Sequence[Record], cells: Sequence[str]) -> list[str]:
    """Return the scales with the most cells."""
    seen: dict[str, set[Any]] = {record["scale"]: set() for record in records}
    for record in records:
        seen[record["scale"]].add(tuple(record["config"].get(field) for field in cells) if cells else ())
    most = max(map(len, seen.values()), default=0)
    return [scale for scale, found in seen.items() if len(found) == most]
