"""A rule that selects the records for a printed table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.report.claims import Claim
from experiments.runner.records import Record

Metric = str | Callable[[Record, Record], float]


@dataclass(frozen=True)
class Rule:
    """The place of our numbers for a printed table.

    Attributes:
        experiment: name of the experiment, whose file is `results/<experiment>.jsonl`.
        settings: returns configuration fields and their values for a claim; a value None means that we have
            no records for this claim.
        metrics: maps a printed metric to a key of the record's metrics, where `name.0` is the first entry of
            a list, or for a comparison to a function of a record and the baseline's record. Other printed
            metrics are not recorded.
        repetitions: returns the number of splits or data draws behind the printed mean; None if unknown.
        print_is_one_draw: whether the printed number is a single draw of what varies between our repetitions.
            Its errors then lack this variation, and our standard deviation is used for it.
        remark: what a reader must know to judge the comparison.
        factors: maps a printed metric to the factor from our units to the printed ones; 1 by default.
        as_long: scales whose trainings are as long as the paper's.
        baseline: like `settings`, for the records of the baseline in a comparison; None for other tables.
    """

    experiment: str
    settings: Callable[[Claim], dict[str, Any]]
    metrics: Mapping[str, Metric]
    repetitions: Callable[[Claim], int] | None = None
    print_is_one_draw: bool = False
    remark: str = ""
    factors: Mapping[str, float] = field(default_factory=dict)
    as_long: tuple[str, ...] = ("paper",)
    baseline: Callable[[Claim], dict[str, Any]] | None = None
