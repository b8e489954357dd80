"""Agreement of our numbers with the printed ones, and how many of them there are."""

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

WITHIN = 2.0  # combined standard errors
DIRECTIONS = {  # 1: larger is better, -1: smaller is better; the others are only equal or not
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
    """How our number stands to the printed one."""

    AGREES = "agrees"  # within two combined standard errors
    BETTER = "better"  # farther, on the better side
    WORSE = "worse"  # farther, on the other side
    DIFFERS = "differs"  # farther, where neither side is better
    DIVERGED = "diverged"  # every run broke down: there is no number
    NOT_RUN = "not run"


class Length(StrEnum):
    """How long our trainings were, beside the paper's."""

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
        """The root of the sum of squares of all that is known: both standard errors and the print's rounding.

        Where the print is of one draw of what we repeat, our standard deviation over repetitions as well.
        """
        ours = (self.measured.error, self.measured.spread) if self.measured else ()
        return math.hypot(*(error or 0.0 for error in (*ours, self.claim.error, self.claim.rounding)))

    @property
    def deviation(self) -> float | None:
        """Ours minus the print, in combined standard errors; None without a number of ours."""
        if self.measured is None or not self.measured.values:
            return None
        return (self.measured.mean - self.claim.number) / self.combined_error

    @property
    def length(self) -> Length:
        """How long our trainings were, beside the paper's."""
        if self.measured is None:
            return Length.NONE
        return Length.FULL if self.measured.as_long else Length.SHORTER

    @property
    def verdict(self) -> Verdict:
        """How our number stands to the printed one."""
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
    """Every printed number with ours.

    Args:
        rules: which records answer which table.

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
    """The comparisons of each printed table, in the order of the report."""
    return [list(group) for _, group in itertools.groupby(found, lambda each: each.claim.file)]


@dataclass(frozen=True)
class Totals:
    """How many printed numbers there are, and how ours stand to them.

    `agrees + better + apart + diverged == covered`.

    Attributes:
        claims: printed numbers.
        not_run: not covered.
        agrees: within two combined standard errors.
        better: farther, on the better side.
        apart: farther, and worse or without a better side.
        diverged: every run broke down.
    """

    claims: int
    not_run: int
    agrees: int
    better: int
    apart: int
    diverged: int

    @property
    def covered(self) -> int:
        """Those that we have a run of."""
        return self.claims - self.not_run


def totals(found: Iterable[Comparison]) -> Totals:
    """Count.

    >>> totals([])
    Totals(claims=0, not_run=0, agrees=0, better=0, apart=0, diverged=0)
    """
    verdicts = Counter(each.verdict for each in found)
    return Totals(
        claims=verdicts.total(),
        not_run=verdicts[Verdict.NOT_RUN],
        agrees=verdicts[Verdict.AGREES],
        better=verdicts[Verdict.BETTER],
        apart=verdicts[Verdict.WORSE] + verdicts[Verdict.DIFFERS],
        diverged=verdicts[Verdict.DIVERGED],
    )


def by_length(found: Iterable[Comparison]) -> dict[Length, list[Comparison]]:
    """The comparisons by how long we trained: what is short is never counted with what is not."""
    parts: dict[Length, list[Comparison]] = {length: [] for length in Length}
    for each in found:
        parts[each.length].append(each)
    return parts
