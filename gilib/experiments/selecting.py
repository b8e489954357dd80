"""What chapters and the report read: records of the experiments that there are, at the best scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gilib.experiments import records
from gilib.experiments.records import SCALES, Record, RecordError, diverged, results_file
from gilib.experiments.registry import EXPERIMENTS


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
    return recorded(name)


def recorded(name: str) -> list[Record]:
    """The same; none if the experiment was never run."""
    return records.recorded(name, EXPERIMENTS[name].config if name in EXPERIMENTS else None)


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
