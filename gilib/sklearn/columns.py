"""Tables whose columns hold no numbers, and rows in another order: what is wrong, and what to do."""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DECIMAL_COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+")
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
PLAIN = re.compile(r"[+-]?\d+(\.\d*)?")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}.*|\d{1,2}[./]\d{1,2}[./]\d{2,4}.*")
DAYS = (datetime.date, np.datetime64)
TIMES = (*DAYS, datetime.timedelta, np.timedelta64)
CELLS = (str, Real, *TIMES)
FAR = 0.1  # of a standard deviation, within which all values but one lie
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


def as_array(value: Any) -> Any:
    """A tensor as an array of numpy, without gradients, bfloat16 as float64; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return (value.double() if value.dtype == torch.bfloat16 else value).numpy()


def check_numbers(table: Any, name: str, words: str) -> None:
    """Raise for columns of a frame, a series or an array that hold no numbers, and say what to do.

    Args:
        table: anything; of pandas, polars and numpy is looked at.
        name: of the table.
        words: advice for columns of words.

    Raises:
        ValueError: with the columns' names, by what is wrong with them.
    """
    wrong: dict[str, list[Any]] = {}
    for label, column in _columns(table):
        if not _numeric(column):
            wrong.setdefault(_advice(column) or words, []).append(label)
    if wrong:
        first, *others = (f"{labels} of {name} to numbers: {advice}" for advice, labels in wrong.items())
        raise ValueError("; nor ".join([f"could not convert the columns {first}", *others]))


def _columns(table: Any) -> list[tuple[Any, Any]]:
    """Columns that may hold something else than numbers, with their names or places."""
    if hasattr(table, "iloc"):
        frame = table if hasattr(table, "columns") else table.to_frame()
        return [(frame.columns[k], frame.iloc[:, k]) for k in range(frame.shape[1])]
    labels = getattr(table, "columns", None)
    if isinstance(labels, list) and all(isinstance(label, str) for label in labels):  # as of polars
        return [(label, np.asarray(table[label])) for label in labels]
    if hasattr(table, "to_numpy") and isinstance(getattr(table, "name", None), str):  # a series of theirs
        return [(table.name, np.asarray(table))]
    array = _read(table) if isinstance(table, list | tuple) else table
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "OMmUS" or array.ndim not in (1, 2):
        return []
    columns = enumerate(
        array.reshape(len(array), -1).T
    )  # objects of other kinds are scikit-learn's to refuse
    return [(k, column) for k, column in columns if all(isinstance(cell, CELLS) for cell in _cells(column))]


def _read(rows: Sequence[Any]) -> Any:
    """Rows as an array, unless their lengths differ."""
    try:
        return np.asarray(rows)
    except ValueError:
        return rows


def _numeric(column: Any) -> bool:
    """Whether a column holds numbers, or what can be read as such; dates and durations do not."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biufmM":
        return kind not in "mM"
    return _is_number(column) and not any(isinstance(cell, TIMES) for cell in _cells(column))


def _is_number(value: Any) -> bool:
    """Of a cell or a whole column."""
    try:
        np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def is_missing(cell: Any) -> bool:
    """Whether it is None, NaN, NaT or pandas.NA, which equals nothing and is not even false."""
    try:
        return cell is None or bool(cell != cell)
    except (TypeError, ValueError):
        return type(cell).__name__ == "NAType"


def _cells(column: Any) -> list[Any]:
    """All that is there, as objects."""
    if hasattr(column, "dropna"):
        column = column.dropna()
    return [cell for cell in np.asarray(column, dtype=object) if not is_missing(cell)]


def _advice(column: Any) -> str | None:
    """What to do about a column that holds no numbers; None: it holds words."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "mM":
        return DATES if kind == "M" else DURATIONS
    cells = _cells(column)
    words = [cell.strip() for cell in cells if isinstance(cell, str)]
    if cells and all(isinstance(cell, DAYS) or _matches(DATE, cell) for cell in cells):
        return DATES
    if cells and all(isinstance(cell, TIMES) for cell in cells):
        return DURATIONS
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


def check_complete(x: NDArray[Any], names: Any) -> None:
    """Raise for NaN and infinite numbers in columns of X `[N, D]`.

    Raises:
        ValueError: with the columns' names.
    """
    wrong = ~np.isfinite(x)
    if not wrong.any():
        return
    where = f"in columns {[label_of(names, k) for k in np.flatnonzero(wrong.any(0)).tolist()]}"
    if missing := int(np.isnan(x).sum()):
        raise ValueError(
            f"X holds {missing} missing values (NaN) {where}: fill them in, as "
            "sklearn.pipeline.make_pipeline(SimpleImputer(), model) does, or leave these rows out"
        )
    raise ValueError(f"X holds {int(wrong.sum())} infinite values {where}: replace them by numbers")


def check_labels(y: Any) -> None:
    """Raise for labels that are missing.

    Raises:
        ValueError: saying how many.
    """
    labels = np.asarray(as_array(y), dtype=object).reshape(-1)
    if y is not None and (missing := sum(map(is_missing, labels))):
        raise ValueError(f"y holds {missing} missing labels: leave their rows out, of X too")


def warn_of_far_values(values: NDArray[Any], names: Any, table: str) -> None:
    """Warn of columns one value of which presses all others together, once they are scaled."""
    for k, column in enumerate(values.T):
        far = column[np.abs(column - column.mean()).argmax()]
        rest = column[column != far]
        if len(rest) and 0.0 < np.ptp(rest) < FAR * column.std():
            warnings.warn(
                f"column {label_of(names, k)!r} of {table} holds {far:g}, and all its other values, "
                f"{rest.min():g} to {rest.max():g}, become nearly the same beside it once scaled: is it "
                "a mistake, or a code for missing values? Replace it, or take logarithms",
                stacklevel=4,
            )


def label_of(names: Any, k: int) -> Any:
    """The name of a column, or its number."""
    return k if names is None else names[k]
