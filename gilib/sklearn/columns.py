"""Checks of tables: errors and warnings that name the columns at fault, and say what to do about them."""

from __future__ import annotations

import datetime
import re
import warnings
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_array
from torch import Tensor

from gilib.data.normalisation import HUGE

DECIMAL_COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+")
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
PLAIN = re.compile(r"[+-]?\d+(\.\d*)?")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}.*|\d{1,2}[./]\d{1,2}[./]\d{2,4}.*")
DAYS = (datetime.date, np.datetime64)
TIMES = (*DAYS, datetime.timedelta, np.timedelta64)
CELLS = (str, Real, *TIMES)
FAR = 0.1  # standard deviations: if all values but one lie within, that one is far away
DATES = (
    "dates are not numbers: with column = pandas.to_datetime(...), use (column - column.min()).dt.days "
    "or column.dt.month, for example"
)
DURATIONS = "durations are not numbers: use column.dt.total_seconds()"
DECIMALS = (
    "they have decimal commas: read them by pandas.read_csv(..., decimal=','), with thousands='.' if needed"
)
EITHER = (
    "they have commas: read them by pandas.read_csv(..., decimal=',') if these are decimal, or by "
    "pandas.read_csv(..., thousands=',') if they separate thousands"
)
BETWEEN = "commas separate their thousands: read them by pandas.read_csv(..., thousands=',')"
GAPS = (
    "most of their cells are numbers: pandas.to_numeric(column, errors='coerce') turns the others into "
    "missing values, which an imputer fills"
)


def as_array(value: Any) -> Any:
    """Return a tensor as a numpy array, bfloat16 as float64; keep all else as it is."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return (value.double() if value.dtype == torch.bfloat16 else value).numpy()


def check_numbers(table: Any, name: str, words: str) -> None:
    """Raise if columns of a table or list hold no numbers; `words` is the advice for columns of words."""
    wrong: dict[str, list[Any]] = {}
    for label, column in _columns(table):
        if not _numeric(column):
            wrong.setdefault(_advice(column) or words, []).append(label)
    if wrong:
        first, *others = (f"{labels} of {name} to numbers: {advice}" for advice, labels in wrong.items())
        raise ValueError("; nor ".join([f"could not convert the columns {first}", *others]))


def _columns(table: Any) -> list[tuple[Any, Any]]:
    """Return the columns that may hold something other than numbers, with their names or numbers."""
    if hasattr(table, "iloc"):
        frame = table if hasattr(table, "columns") else table.to_frame()
        return [(frame.columns[k], frame.iloc[:, k]) for k in range(frame.shape[1])]
    labels = getattr(table, "columns", None)
    if isinstance(labels, list) and all(isinstance(label, str) for label in labels):  # a frame of polars
        return [(label, np.asarray(table[label])) for label in labels]
    if hasattr(table, "to_numpy") and isinstance(getattr(table, "name", None), str):  # a series of polars
        return [(table.name, np.asarray(table))]
    array = table
    if isinstance(table, list | tuple):
        try:
            array = np.asarray(table)
        except ValueError:  # rows of several lengths
            return []
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "OMmUS" or array.ndim not in (1, 2):
        return []
    columns = enumerate(array.reshape(len(array), -1).T)  # scikit-learn refuses objects of other kinds
    return [(k, column) for k, column in columns if all(isinstance(cell, CELLS) for cell in _cells(column))]


def _numeric(column: Any) -> bool:
    """Return whether a column holds numbers, or text that reads as numbers, and no dates or durations."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biufmM":
        return kind not in "mM"
    return _is_number(column) and not any(isinstance(cell, TIMES) for cell in _cells(column))


def _is_number(value: Any) -> bool:
    try:
        np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN, NaT or pandas.NA."""
    try:
        return cell is None or bool(cell != cell)
    except (TypeError, ValueError):  # pandas.NA compares to NA, which has no truth value
        return type(cell).__name__ == "NAType"


def _cells(column: Any) -> list[Any]:
    if hasattr(column, "dropna"):
        column = column.dropna()
    return [cell for cell in np.asarray(column, dtype=object) if not is_missing(cell)]


def _advice(column: Any) -> str | None:
    """Return what to do about a column that does not hold numbers; None if it holds words."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "mM":
        return DATES if kind == "M" else DURATIONS
    cells = _cells(column)
    words = [cell.strip() for cell in cells if isinstance(cell, str)]
    days = [cell for cell in cells if isinstance(cell, DAYS)]
    if cells and len(days) + len(words) == len(cells) and all(map(DATE.fullmatch, words)):
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


def warn_of_other_order(X: Any, y: Any) -> None:
    """Warn if X and y have the same index in another order, because rows are paired by position."""
    if not (hasattr(X, "iloc") and hasattr(y, "iloc")) or X.index.equals(y.index):
        return
    both = X.index, y.index
    if all(index.is_unique for index in both) and len(both[0]) == len(both[1]):
        if not len(both[0].difference(both[1])):
            warnings.warn(
                "X and y have the same index in another order, but rows are paired by position: pass "
                "y.loc[X.index] to pair them by index",
                stacklevel=5,
            )


def check_complete(x: NDArray[Any], names: Any) -> None:
    """Raise if columns of X, `[N, D]`, hold NaN, or numbers whose squares are infinite."""
    wrong = ~(np.abs(x) < HUGE)
    if not wrong.any():
        return
    where = f"in columns {[label_of(names, k) for k in np.flatnonzero(wrong.any(0)).tolist()]}"
    if missing := int(np.isnan(x).sum()):
        raise ValueError(
            f"X holds {missing} missing values (NaN) {where}: fill them in, as "
            "sklearn.pipeline.make_pipeline(SimpleImputer(), model) does, or leave these rows out"
        )
    raise ValueError(f"X holds {int(wrong.sum())} infinite or huge values {where}: replace or rescale them")


def check_labels(y: Any) -> None:
    """Raise if labels are missing."""
    labels = np.asarray(as_array(y), dtype=object).reshape(-1)
    if y is not None and (missing := sum(map(is_missing, labels))):
        raise ValueError(f"y holds {missing} missing labels: leave their rows out, also from X")


def warn_of_far_values(values: NDArray[Any], names: Any, table: str) -> None:
    """Warn of columns with one value so far away that all others become nearly equal once they are scaled."""
    for k, column in enumerate(values.T):
        far = column[np.abs(column - column.mean()).argmax()]
        rest = column[column != far]
        if len(rest) and 0.0 < np.ptp(rest) < FAR * column.std():
            warnings.warn(
                f"column {label_of(names, k)!r} of {table} holds {far:g}, and scaling makes all its other "
                f"values, {rest.min():g} to {rest.max():g}, nearly equal: is {far:g} a mistake, or a code "
                "for missing values? Replace it, or take logarithms",
                stacklevel=4,
            )


def label_of(names: Any, k: int) -> Any:
    """Return the name of column k, or k if columns have no names."""
    return k if names is None else names[k]


def names_of(y: Any) -> list[str] | str | None:
    """Return the columns of a data frame or the name of a series; None for targets without names."""
    if hasattr(y, "columns"):
        return list(y.columns)
    return (y.name if y.name is not None else "y") if hasattr(y, "index") and hasattr(y, "name") else None


def named(values: NDArray[Any], X: Any, names: list[str] | str | None) -> Any:
    """Return predictions as a frame or series with X's index and the targets' names, if X is a data frame."""
    if names is None or not hasattr(X, "iloc"):
        return values
    import pandas as pd

    if isinstance(names, list):
        return pd.DataFrame(values, index=X.index, columns=names)
    return pd.Series(values, index=X.index, name=names)


def in_order(y: Any, names: list[str] | str | None) -> Any:
    """Return targets; columns of a data frame are put in the order of `names`."""
    own = names_of(y)
    if not (isinstance(own, list) and isinstance(names, list)):
        return y
    if set(own) != set(names):
        raise ValueError(f"y must have the columns {names}, got {own}")
    return y[names]


def as_targets(y: Any, names: list[str] | str | None, shape: tuple[int, ...], words: str) -> NDArray[Any]:
    """Return targets as an array of this shape, `[N, O]`; `words` is the advice for columns of words."""
    check_numbers(y, "y", words)
    values = check_array(as_array(in_order(y, names)), ensure_2d=False, dtype=np.float64, input_name="y")
    targets = values.reshape(len(values), -1)
    if targets.shape != shape:
        raise ValueError(f"y must hold {list(shape)} targets, a row for each of X, got {list(targets.shape)}")
    return targets
