"""Our number for a claim: the records that answer it, at one scale, over splits and seeds."""

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
REPEATED = ("split", "seed", "repetition")  # what tells the repetitions of a configuration apart


@dataclass(frozen=True)
class RecordLine:
    """A record and the line of its file."""

    line: int
    record: Record


@dataclass(frozen=True)
class Measured:
    """Our number for a claim.

    Attributes:
        scale: "reduced", "long" or "paper".
        values: one for each repetition that did not diverge, in the order of the file; perhaps none.
        sources: the records of all repetitions, diverged ones included.
        wanted: how many repetitions the print is the mean of; None if it does not say.
        print_is_one_draw: whether the print is one draw of what our repetitions vary over.
        as_long: whether our trainings were as long as the paper's.
        only: the settings that choose these trainings from the grid of their scale, as "field=value".
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
        """Over the repetitions that did not diverge.

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
        """The standard deviation of a print that is one draw, estimated by ours; None if there is none."""
        if self.error is None or not self.print_is_one_draw:
            return None
        return self.error * math.sqrt(len(self.values))

    @property
    def diverged(self) -> int:
        """Repetitions that broke down."""
        return len(self.sources) - len(self.values)


def measure(claim: Claim, rule: Rule, records: Sequence[Record], grids: Grids) -> Measured | None:
    """Our number for a claim, from all records of the rule's experiment in the order of their file.

    It rests on the largest scale at which every training that answers the claim is recorded, and on the
    largest one if there is no such scale. Smoke records never count, and of several records of one repetition
    the last one counts. Diverged repetitions are known but enter no mean.

    Args:
        claim: the printed number.
        rule: which records answer it.
        records: of the rule's experiment.
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
    """Whether a grid has trainings of every cell, and all of them are recorded."""
    parts = [[done for config, done in grid if _meets(config, cell)] for cell in cells]
    return all(part and all(part) for part in parts)


def _matching(cell: Mapping[str, Any], records: Sequence[Record]) -> list[RecordLine]:
    lines = enumerate(records, 1)
    return [RecordLine(k, r) for k, r in lines if r["scale"] != "smoke" and _meets(r["config"], cell)]


def _repetition(source: RecordLine) -> tuple[Any, ...]:
    return source.record["scale"], *(source.record["config"].get(key) for key in REPEATED)


def _together(own: Sequence[RecordLine], *others: Sequence[RecordLine]) -> list[tuple[RecordLine, ...]]:
    """Each record with those of the others of its repetition and scale; without those that lack one."""
    partners = [{_repetition(each): each for each in other} for other in others]
    return [
        (source, *(partner[_repetition(source)] for partner in partners))
        for source in own
        if all(_repetition(source) in partner for partner in partners)
    ]


def _last_of_each(groups: Sequence[tuple[RecordLine, ...]]) -> list[tuple[RecordLine, ...]]:
    """The last record of every repetition, with its partner, in the order of the file."""
    last = {_repetition(group[0]): group for group in groups}
    return sorted(last.values(), key=lambda group: group[0].line)


def _value(metric: Metric, sources: Sequence[RecordLine]) -> float:
    """A function of these records, or of a single one the metric of this name."""
    if isinstance(metric, str):
        return _named(metric, sources[0])
    return metric(*(source.record for source in sources))


def _named(key: str, source: RecordLine) -> float:
    """The metric `name`, or entry k of the list `name` for the key `name.k`."""
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
