"""Compare our numbers with the printed ones, and count agreements."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from experiments.registry import EXPERIMENTS
from experiments.report.claims import Claim, claims
from experiments.report.measuring import Measured, measure
from experiments.report.rules import RULES, Rule
from experiments.selecting import grids, recorded

WITHIN = 2.0  # agreement means a difference of at most so many combined standard errors
DIRECTIONS = {  # 1: larger is better, -1: smaller is better; other metrics only agree or differ
    "test_log_likelihood": 1,
    "elbo": 1,
    "elbo_per_datapoint": 1,
    "elbo_total": 1,
    "iwbo": 1,
    "accuracy": 1,
    "rmse": -1,
    "expected_calibration_error": -1,
    "predictive_entropy_ratio": -1,
}


class Verdict(StrEnum):
    """The comparison of our number with the printed one."""

    AGREES = "agrees"  # within two combined standard errors
    BETTER = "better"  # farther away, and better
    WORSE = "worse"  # farther away, and worse
    DIFFERS = "differs"  # farther away, for a metric without a better side
    DIVERGED = "diverged"  # every run broke down: there is no number
    NOT_RUN = "not run"


class Length(StrEnum):
    """The length of our trainings, compared with the paper's."""

    FULL = "as long"
    SHORTER = "shorter"
    NONE = "not run"


@dataclass(frozen=True)
class Comparison:
    """A printed number with ours, if there is one."""

    claim: Claim
    measured: Measured | None

    @property
    def combined_error(self) -> float:
        """Root of the sum of squares of both standard errors, as far as known, and of the print's rounding.

        If the printed number is one draw of what we repeat, it includes our standard deviation, too.
        """
        ours = (self.measured.error, self.measured.spread) if self.measured else ()
        return math.hypot(*(error or 0.0 for error in (*ours, self.claim.error, self.claim.rounding)))

    @property
    def deviation(self) -> float | None:
        """Our number minus the printed one, in combined standard errors; None without a number of ours."""
        if self.measured is None or not self.measured.values:
            return None
        return (self.measured.mean - self.claim.number) / self.combined_error

    @property
    def length(self) -> Length:
        """The length of our trainings, compared with the paper's."""
        if self.measured is None:
            return Length.NONE
        return Length.FULL if self.measured.as_long else Length.SHORTER

    @property
    def verdict(self) -> Verdict:
        """The verdict on our number."""
        if self.measured is None:
            return Verdict.NOT_RUN
        if (deviation := self.deviation) is None:
            return Verdict.DIVERGED
        if abs(deviation) <= WITHIN or math.isclose(abs(deviation), WITHIN):
            return Verdict.AGREES
        direction = DIRECTIONS.get(self.claim.metric, 0)
        if direction == 0:
            return Verdict.DIFFERS
        return Verdict.BETTER if direction * deviation > 0 else Verdict.WORSE


def comparisons(rules: Mapping[str, Rule] = RULES) -> list[Comparison]:
    """Return every printed number with ours.

    Args:
        rules: rules that select the records for each table.

    Raises:
        RecordError: if there are no printed tables, a file is damaged, or a record lacks a metric.
    """
    records = {name: recorded(name) for name in {rule.experiment for rule in rules.values()}}
    trainings = {name: grids(name) if name in EXPERIMENTS else {} for name in records}

    def ours(claim: Claim) -> Measured | None:
        if (rule := rules.get(claim.file)) is None:
            return None
        return measure(claim, rule, records[rule.experiment], trainings[rule.experiment])

    return [Comparison(claim, ours(claim)) for claim in claims()]


def by_table(found: Iterable[Comparison]) -> list[list[Comparison]]:
    """Group comparisons by printed table, in the order of the report."""
    return [list(group) for _, group in itertools.groupby(found, lambda each: each.claim.file)]


@dataclass(frozen=True)
class Totals:
    """The number of printed numbers, and of each verdict.

    `agrees + better + disagree + diverged == covered`.

    Attributes:
        claims: printed numbers.
        not_run: those that we did not run.
        agrees: those within two combined standard errors.
        better: those farther away, and better.
        disagree: those farther away, and worse or without a better side.
        diverged: those for which every run broke down.
    """

    claims: int
    not_run: int
    agrees: int
    better: int
    disagree: int
    diverged: int

    @property
    def covered(self) -> int:
        """Number of printed numbers that we ran."""
        return self.claims - self.not_run


def totals(found: Iterable[Comparison]) -> Totals:
    """Count the verdicts.

    >>> totals([])
    Totals(claims=0, not_run=0, agrees=0, better=0, disagree=0, diverged=0)
    """
    verdicts = Counter(each.verdict for each in found)
    return Totals(
        claims=verdicts.total(),
        not_run=verdicts[Verdict.NOT_RUN],
        agrees=verdicts[Verdict.AGREES],
        better=verdicts[Verdict.BETTER],
        disagree=verdicts[Verdict.WORSE] + verdicts[Verdict.DIFFERS],
        diverged=verdicts[Verdict.DIVERGED],
    )


def by_length(found: Iterable[Comparison]) -> dict[Length, list[Comparison]]:
    """Group comparisons by the length of our trainings, because short and full ones are never mixed."""
    parts: dict[Length, list[Comparison]] = {length: [] for length in Length}
    for each in found:
        parts[each.length].append(each)
    return parts
