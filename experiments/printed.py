"""Numbers that the papers print, as CSV files beside our own records."""

from __future__ import annotations

import csv
from pathlib import Path

from experiments.runner.records import RecordError

YARDSTICK = "best_known_uci_test_ll"  # the best of several sources
AUTHORS_CODE = "bayesfunc_deep_gps"  # the authors' layers in our loop, settings as in `DgpConfig`, float64
QUOTED = (YARDSTICK, "hernandez2015_pbp", AUTHORS_CODE)  # for comparison only, not to be reproduced
PRINTED = Path(__file__).parents[1] / "results" / "printed"  # does not move with GILIB_RESULTS


def printed(table: str) -> list[dict[str, str]]:
    """Return the rows of a printed table, one number per row.

    Args:
        table: name of a file in `results/printed/`, without its ending.

    Returns:
        One dictionary for each row, with source, table, dataset, method, prior, metric, value, stderr, units,
        note, ...; `value` and `stderr` keep the printed digits.

    Raises:
        RecordError: if there is no such table; the message lists all tables.
    """
    path = PRINTED / f"{table}.csv"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in PRINTED.glob("*.csv"))) or "none"
        raise RecordError(f"no printed table {table!r} in {PRINTED}: there are {known}")
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
