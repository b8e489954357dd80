"""Numbers that the papers print, as CSV files beside our own records."""

from __future__ import annotations

import csv
from pathlib import Path

from experiments.runner.records import RecordError

YARDSTICK = "best_known_uci_test_ll"  # the best of several sources
AUTHORS_CODE = "bayesfunc_deep_gps"  # its layers in a loop of ours, settings as in `DgpConfig`, float64
QUOTED = (YARDSTICK, "hernandez2015_pbp", AUTHORS_CODE)  # to compare with: no tables that we reproduce
PRINTED = Path(__file__).parents[1] / "results" / "printed"  # wherever our own records are kept


def printed(table: str) -> list[dict[str, str]]:
    """The rows of a printed table, one number a row.

    Args:
        table: name of a file in `results/printed/`, without its ending.

    Returns:
        One dictionary for each row: source, table, dataset, method, prior, metric, value, stderr, units,
        note, ...; `value` and `stderr` keep the printed digits.

    Raises:
        RecordError: if there is no such table; the message lists those that there are.
    """
    path = PRINTED / f"{table}.csv"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in PRINTED.glob("*.csv"))) or "none"
        raise RecordError(f"no printed table {table!r} in {PRINTED}: there are {known}")
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
