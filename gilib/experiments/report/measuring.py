"""Our number for a claim: the records that answer it, at the largest scale, over splits and seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gilib.experiments.report.claims import Claim
from gilib.experiments.report.rules import Rule
from gilib.experiments.report.rules.rule import Metric
from gilib.experiments.runner.records import Record, RecordError, diverged
from gilib.experiments.selecting import best_scale
from gilib.tables import mean_and_error

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
    """

    scale: str
    values: tuple[float, ...]
    sources: tuple[RecordLine, ...]
    wanted: int | None = None
    print_is_one_draw: bool = False

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


def measure(
    claim: Claim, rule: Rule, records: Sequence[Record], scales: Mapping[Any, str] | None = None
) -> Measured | None:
    """Our number for a claim, from all records of the rule's experiment in the order of their file.

    Smoke records never count, and of several records of one repetition at one scale the last one counts.
    Diverged repetitions are known but enter no mean.

    Args:
        claim: the printed number.
        rule: which records answer it.
        records: of the rule's experiment.
        scales: the scale of each value of the field `rule.each`; a claim of which there is no record there
            rests on the largest of its own.

    Raises:
        RecordError: if a record has no such metric.
    """
    if claim.metric not in rule.metrics:
        return None
    matching = _matching(rule.settings(claim), records)
    sources = _last_of_each(_given(matching, rule.each, scales or {}) or _at_best_scale(matching))
    found = _with_partners(sources, None if rule.baseline is None else rule.baseline(claim), records)
    if not found:
        return None
    healthy = [each for each in found if not any(diverged(source.record) for source in each)]
    factor = rule.factors.get(claim.metric, 1.0)
    values = tuple(factor * _value(rule.metrics[claim.metric], each) for each in healthy)
    wanted = rule.repetitions(claim) if rule.repetitions else None
    scale, own = found[0][0].record["scale"], tuple(each[0] for each in found)
    return Measured(scale, values, own, wanted, rule.print_is_one_draw)


def _matching(settings: Mapping[str, Any], records: Sequence[Record]) -> list[RecordLine]:
    return [
        RecordLine(line, record)
        for line, record in enumerate(records, 1)
        if record["scale"] != "smoke"
        and all(
            wanted is not None and record["config"].get(key) == wanted for key, wanted in settings.items()
        )
    ]


def _given(sources: Sequence[RecordLine], each: str, scales: Mapping[Any, str]) -> list[RecordLine]:
    records = [(source, source.record) for source in sources]
    return [source for source, record in records if record["scale"] == scales.get(record["config"].get(each))]


def _at_best_scale(sources: Sequence[RecordLine]) -> list[RecordLine]:
    kept = {record["id"] for record in best_scale([source.record for source in sources])}
    return [source for source in sources if source.record["id"] in kept]


def _last_of_each(sources: Sequence[RecordLine]) -> list[RecordLine]:
    """The last record of every repetition, in the order of the file."""
    last = {_repetition(source): source for source in sources}
    return sorted(last.values(), key=lambda source: source.line)


def _repetition(source: RecordLine) -> tuple[Any, ...]:
    return tuple(source.record["config"].get(key) for key in REPEATED)


def _with_partners(
    sources: Sequence[RecordLine], baseline: Mapping[str, Any] | None, records: Sequence[Record]
) -> list[tuple[RecordLine, ...]]:
    """Each record; with a baseline: and its record of that repetition and scale, if there is one."""
    if baseline is None:
        return [(source,) for source in sources]
    others = {(_repetition(each), each.record["scale"]): each for each in _matching(baseline, records)}
    keys = [(_repetition(source), source.record["scale"]) for source in sources]
    return [(source, others[key]) for source, key in zip(sources, keys, strict=True) if key in others]


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
