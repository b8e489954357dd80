"""The best known results: not a table to reproduce, but where our best numbers stand beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.printed import YARDSTICK, printed
from experiments.report.comparing import Comparison

TABLES = ("ober2021_table5_uci_bnn_test_ll", "ober2021_table8_uci_dgp_test_ll")  # the same splits and measure


@dataclass(frozen=True)
class Best:
    """The best known test log-likelihood on a data set, and the best of ours.

    Attributes:
        dataset: name of the data set.
        value: the best known mean, as printed.
        stderr: its standard error, "" if there is none.
        method: what reached it.
        source: where it is printed.
        ours: the comparison whose mean of ours is highest, None if nothing was run. Chosen among many by the
            very test data, so it flatters.
    """

    dataset: str
    value: str
    stderr: str
    method: str
    source: str
    ours: Comparison | None


def yardstick(found: Sequence[Comparison]) -> list[Best]:
    """The best known results with the best of ours.

    Raises:
        RecordError: if there is no file of best known results.
    """
    ours = [each for each in found if each.claim.file in TABLES and each.deviation is not None]
    best = []
    for row in printed(YARDSTICK):
        here = [each for each in ours if each.claim.dataset == row["dataset"]]
        known = {name: row[name] for name in ("dataset", "value", "stderr", "method", "source")}
        best.append(Best(**known, ours=max(here, key=_mean, default=None)))
    return best


def _mean(comparison: Comparison) -> float:
    assert comparison.measured is not None
    return comparison.measured.mean
