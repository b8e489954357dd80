"""Compute our number for a claim: from its records at one scale, over splits and seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.report.claims import Claim
from experiments.report.rules import Rule
from experiments.report.rules.rule import Metric
from experiments.runner.records import SCALES, Record, RecordError, diverged
from experiments.tables import mean_and_error

Grids = Mapping[str, Sequence[tuple[Mapping[str, Any], bool]]]  # see `experiments.selecting.grids`
REPEATED = ("split", "seed", "repetition")  # settings that differ between repetitions


@dataclass(frozen=True)
class RecordLine:
    """A record and its line in the file."""

    line: int
    record: Record


@dataclass(frozen=True)
class Measured:
    """Our number for a claim.

    Attributes:
        scale: "reduced", "long" or "paper".
        values: values of repetitions that did not diverge, in the order of the file; perhaps none.
        sources: records of all repetitions, including diverged ones.
        wanted: number of repetitions behind the printed number; None if the paper does not say.
        print_is_one_draw: whether the printed number is a single draw of what varies between our repetitions.
        as_long: whether our trainings were as long as the paper's.
        only: settings that select these trainings from the grid of their scale, as "field=value".
    """

    scale: str
    values: tuple[float, ...]
    sources: tuple[RecordLine, ...]
    wanted: int | None = None
    print_is_one_draw: bool = False
    as_long: bool = False
    only: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether this is the paper's experiment: its scale, and no fewer repetitions."""
        return self.scale == "paper" and len(self.sources) >= (self.wanted or 0)

    @property
    def mean(self) -> float:
        """Mean over the repetitions that did not diverge.

        Raises:
            ValueError: if all of them diverged.
        """
        return mean_and_error(self.values)[0]

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for a single value."""
        return mean_and_error(self.values)[1] if len(self.values) > 1 else None

    @property
    def spread(self) -> float | None:
        """Our standard deviation, if the printed number is a single draw; else None."""
        if self.error is None or not self.print_is_one_draw:
            return None
        return self.error * math.sqrt(len(self.values))

    @property
    def diverged(self) -> int:
        """Number of repetitions that broke down."""
        return len(self.sources) - len(self.values)


def measure(claim: Claim, rule: Rule, records: Sequence[Record], grids: Grids) -> Measured | None:
    """Return our number for a claim, from all records of the rule's experiment in the order of their file.

    It uses the largest scale at which every training for the claim is recorded, or the largest scale if there
    is none. Smoke records never count. If a repetition has several records, the last one counts. Diverged
    repetitions are listed but not part of the mean.

    Args:
        claim: the printed number.
        rule: rule that selects the records.
        records: records of the rule's experiment.
        grids: its trainings, by scale, and whether they are recorded.

    Raises:
        RecordError: if a record has no such metric.
    """
    if claim.metric not in rule.metrics:
        return None
    cells = [rule.settings(claim)] + ([rule.baseline(claim)] if rule.baseline else [])
    groups = _together(*(_matching(cell, records) for cell in cells))
    if not groups:
        return None
    scale = max(
        {own.record["scale"] for own, *_ in groups},
        key=lambda each: (_is_complete(cells, grids.get(each, ())), SCALES.index(each)),
    )
    found = _last_of_each([group for group in groups if group[0].record["scale"] == scale])
    healthy = [each for each in found if not any(diverged(source.record) for source in each)]
    factor = rule.factors.get(claim.metric, 1.0)
    return Measured(
        scale,
        tuple(factor * _value(rule.metrics[claim.metric], each) for each in healthy),
        tuple(own for own, *_ in found),
        rule.repetitions(claim) if rule.repetitions else None,
        rule.print_is_one_draw,
        scale in rule.as_long,
        tuple(dict.fromkeys(f"{key}={value}" for cell in cells for key, value in cell.items())),
    )


def _meets(config: Mapping[str, Any], cell: Mapping[str, Any]) -> bool:
    return all(wanted is not None and config.get(key) == wanted for key, wanted in cell.items())


def _is_complete(cells: Sequence[Mapping[str, Any]], grid: Sequence[tuple[Mapping[str, Any], bool]]) -> bool:
    """Return whether a grid has trainings for every cell, and all of them are recorded."""
    parts = [[done for config, done in grid if _meets(config, cell)] for cell in cells]
    return all(part and all(part) for part in parts)


def _matching(cell: Mapping[str, Any], records: Sequence[Record]) -> list[RecordLine]:
    lines = enumerate(records, 1)
    return [RecordLine(k, r) for k, r in lines if r["scale"] != "smoke" and _meets(r["config"], cell)]


def _repetition(source: RecordLine) -> tuple[Any, ...]:
    return source.record["scale"], *(source.record["config"].get(key) for key in REPEATED)


def _together(own: Sequence[RecordLine], *others: Sequence[RecordLine]) -> list[tuple[RecordLine, ...]]:
    """Join each record with the others of its repetition and scale; drop records without a partner."""
    partners = [{_repetition(each): each for each in other} for other in others]
    return [
        (source, *(partner[_repetition(source)] for partner in partners))
        for source in own
        if all(_repetition(source) in partner for partner in partners)
    ]


def _last_of_each(groups: Sequence[tuple[RecordLine, ...]]) -> list[tuple[RecordLine, ...]]:
    """Return the last record of every repetition, with its partners, in the order of the file."""
    last = {_repetition(group[0]): group for group in groups}
    return sorted(last.values(), key=lambda group: group[0].line)


def _value(metric: Metric, sources: Sequence[RecordLine]) -> float:
    """Return the value of a metric: a function of the records, or the name of a metric of a single one."""
    if isinstance(metric, str):
        return _named(metric, sources[0])
    return metric(*(source.record for source in sources))


def _named(key: str, source: RecordLine) -> float:
    """Return the metric `name`, or for the key `name.k` entry k of the list `name`."""
    name, _, entry = key.partition(".")
    try:
        found = source.record["metrics"][name]
        return float(found[int(entry)] if entry else found)
    except (KeyError, IndexError, TypeError, ValueError):
        record = source.record
        raise RecordError(
            f"results/{record['experiment']}.jsonl, line {source.line}: {record['id']} has no metric "
            f"{key!r}; correct the rule of the table"
        ) from None
