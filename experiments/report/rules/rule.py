"""A rule: which records answer a printed table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.report.claims import Claim
from experiments.runner.records import Record

Metric = str | Callable[[Record, Record], float]


@dataclass(frozen=True)
class Rule:
    """Where our numbers for a printed table are.

    Attributes:
        experiment: name of the experiment, `results/<experiment>.jsonl`.
        settings: fields of the configuration and the values that a claim asks for; a value None: nothing of
            ours answers this claim.
        metrics: printed metric -> key of the record's metrics; `name.0` is the first entry of a list. For a
            comparison: a function of a record and that of the baseline. Printed metrics that are not named
            are not recorded.
        repetitions: how many splits or draws of the data the print averages over; None: it does not say.
        print_is_one_draw: whether the print is one draw of what our repetitions vary over, so that its errors
            leave this variation out: our standard deviation then stands for it.
        remark: what a reader must know to judge the comparison.
        factors: printed metric -> the printed unit's number for one of ours; 1 where it is not named.
        as_long: scales whose trainings are as long as the paper's.
        baseline: as `settings`, of the records that a comparison is with, repetition by repetition; None: the
            table compares nothing.
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
