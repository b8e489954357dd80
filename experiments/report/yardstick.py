"""Compare the best known results, which no single table prints, with our best numbers."""

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
        stderr: its standard error, or "".
        method: method that reached it.
        source: publication that prints it.
        ours: the comparison with our highest mean, or None. It is selected among many on the test data, so it
            is optimistic.
    """

    dataset: str
    value: str
    stderr: str
    method: str
    source: str
    ours: Comparison | None


def yardstick(found: Sequence[Comparison]) -> list[Best]:
    """Return the best known result and our best for each data set.

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
