"""What chapters and the report read: records of the experiments that there are, at the best scale."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.registry import EXPERIMENTS
from experiments.runner import records
from experiments.runner.groups import chosen
from experiments.runner.identity import identity, record_identity
from experiments.runner.records import SCALES, Record, RecordError, diverged, results_file
from gilib.data.storage import DataError


def load_records(name: str) -> list[Record]:
    """All records of an experiment, in the order in which they were appended, diverged ones included.

    Args:
        name: the experiment, `results/<name>.jsonl`.

    Raises:
        RecordError: if there is no such file, or a line of it is not a record of it; with its number.
    """
    path = results_file(name)
    if not path.exists():
        raise RecordError(f"no results at {path}: run `python -m experiments run {name}`")
    return recorded(name)


def recorded(name: str) -> list[Record]:
    """The same; none if the experiment was never run."""
    return records.recorded(name, EXPERIMENTS[name].config if name in EXPERIMENTS else None)


def select(
    name: str, *, cells: Sequence[str] = (), each: str = "", include_diverged: bool = False, **settings: Any
) -> list[Record]:
    """The recorded runs of an experiment with these settings, at the largest scale among them.

    Args:
        name: the experiment.
        cells: fields of its configuration that tell the cells of a table apart; a larger scale that has fewer
            of them, because it was only begun, does not displace a smaller one.
        each: a field of which each value has a scale of its own, see `scales_of`.
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
    if not each:
        return best_scale(matching, cells)
    scales = scales_of(name, each, cells)
    return [record for record in matching if record["scale"] == scales[record["config"][each]]]


def scales_of(name: str, each: str, cells: Sequence[str] = ()) -> dict[Any, str]:
    """The scale at which each value of a field is shown, for example each data set.

    It is the largest that is complete: the grid's trainings with this value are all recorded, diverged or
    not, and none of the cells that another scale has is missing. Where none is complete, the largest of those
    with the most cells; smoke counts only there.

    Args:
        name: the experiment.
        each: the field.
        cells: further fields that tell the cells of a table apart.
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
    """The settings of every training of an experiment, by scale, and whether it is recorded, diverged or not.

    Without smoke, and without a scale whose grid needs other records first.

    Args:
        name: the experiment.
    """
    experiment, found = EXPERIMENTS[name], {}
    done = {record_identity(record, experiment.config) for record in recorded(name)}
    for scale in set(experiment.scales) - {"smoke"}:
        with contextlib.suppress(RecordError, DataError):
            grid = chosen(experiment, scale)
            found[scale] = [(vars(config), identity(name, config) in done) for config in grid]
    return found


def _complete(name: str, each: str) -> set[tuple[Any, str]]:
    """Values of a field and scales at which everything is recorded."""
    trainings = [(row[each], scale, done) for scale, grid in grids(name).items() for row, done in grid]
    missing = {(value, scale) for value, scale, done in trainings if not done}
    return {(value, scale) for value, scale, _ in trainings} - missing


def best_scale(records: list[Record], cells: Sequence[str] = ()) -> list[Record]:
    """The records of the largest scale among them, or of the largest one with the most cells; see `select`.

    >>> best_scale([{"scale": "smoke"}, {"scale": "paper"}])
    [{'scale': 'paper'}]
    """
    best = max(_most_cells(records, cells), key=SCALES.index, default="")
    return [record for record in records if record["scale"] == best]


def _most_cells(records: Sequence[Record], cells: Sequence[str]) -> list[str]:
    """The scales that have the most cells."""
    seen: dict[str, set[Any]] = {record["scale"]: set() for record in records}
    for record in records:
        seen[record["scale"]].add(tuple(record["config"].get(field) for field in cells) if cells else ())
    most = max(map(len, seen.values()), default=0)
    return [scale for scale, found in seen.items() if len(found) == most]
