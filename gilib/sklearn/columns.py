"""Tables whose columns hold no numbers, and rows in another order: what is wrong, and what to do."""

from __future__ import annotations

import datetime
import re
import warnings
from numbers import Real
from typing import Any

import numpy as np

DECIMAL_COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+")
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
PLAIN = re.compile(r"[+-]?\d+(\.\d*)?")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}.*|\d{1,2}[./]\d{1,2}[./]\d{2,4}.*")
DATES = (
    "dates are no numbers: of column = pandas.to_datetime(...) are (column - column.min()).dt.days and "
    "column.dt.month, for example"
)
DURATIONS = "durations are no numbers: column.dt.total_seconds() are"
DECIMALS = (
    "their decimals are commas, which pandas.read_csv(..., decimal=',') reads, and thousands='.' if need be"
)
EITHER = (
    "their commas are decimals, which pandas.read_csv(..., decimal=',') reads, or stand between thousands, "
    "which thousands=',' reads"
)
BETWEEN = "commas stand between their thousands, which pandas.read_csv(..., thousands=',') reads"
GAPS = (
    "most of their cells are numbers; pandas.to_numeric(column, errors='coerce') makes gaps of the others, "
    "which an imputer fills"
)


def check_numbers(table: Any, name: str, words: str) -> None:
    """Raise for columns of a frame or a series of pandas that hold no numbers, and say what to do.

    Args:
        table: anything; only pandas is looked at.
        name: of the table.
        words: advice for columns of words.

    Raises:
        ValueError: with the columns' names, by what is wrong with them.
    """
    if not hasattr(table, "iloc"):
        return
    frame = table if hasattr(table, "columns") else table.to_frame()
    wrong: dict[str, list[Any]] = {}
    for k in range(frame.shape[1]):
        if not _numeric(column := frame.iloc[:, k]):
            wrong.setdefault(_advice(column) or words, []).append(frame.columns[k])
    if wrong:
        first, *others = (f"{labels} of {name} to numbers: {advice}" for advice, labels in wrong.items())
        raise ValueError("; nor ".join([f"could not convert the columns {first}", *others]))


def _numeric(column: Any) -> bool:
    """Whether a column holds numbers, or what can be read as such; dates do not."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biufmM":
        return kind not in "mM"
    return _is_number(column)


def _is_number(value: Any) -> bool:
    """Of a cell or a whole column."""
    try:
        np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _advice(column: Any) -> str | None:
    """What to do about a column that holds no numbers; None: it holds words."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "mM":
        return DATES if kind == "M" else DURATIONS
    cells = np.asarray(column.dropna(), dtype=object)
    words = [cell.strip() for cell in cells if isinstance(cell, str)]
    if len(cells) and all(isinstance(cell, datetime.date) or _matches(DATE, cell) for cell in cells):
        return DATES
    commas = [word for word in words if "," in word]
    others = [word for word in words if "," not in word]
    if commas and all(map(PLAIN.fullmatch, others)):
        if all(map(THOUSANDS.fullmatch, commas)):
            sure = any(word.count(",") > 1 or "." in word for word in words)
            return BETWEEN if sure else EITHER
        if all(map(DECIMAL_COMMA.fullmatch, commas)):
            return DECIMALS
    numbers = sum(isinstance(cell, Real) or (isinstance(cell, str) and _is_number(cell)) for cell in cells)
    return GAPS if 2 * numbers > len(cells) else None


def _matches(pattern: re.Pattern[str], cell: Any) -> bool:
    return isinstance(cell, str) and bool(pattern.fullmatch(cell.strip()))


def warn_of_other_order(X: Any, y: Any) -> None:
    """Rows are paired by position: warn where labels of rows say otherwise."""
    if not (hasattr(X, "iloc") and hasattr(y, "iloc")) or X.index.equals(y.index):
        return
    both = X.index, y.index
    if all(index.is_unique for index in both) and len(both[0]) == len(both[1]):
        if not len(both[0].difference(both[1])):
            warnings.warn(
                "X and y have the same rows in another order, and are paired by position: if labels are to "
                "pair them, hand over y.loc[X.index]",
                stacklevel=5,
            )
