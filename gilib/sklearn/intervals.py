"""The coverage of predicted intervals, overall and for groups of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy.stats import binom

from gilib.optional import require_package
from gilib.sklearn.columns import as_array, as_targets, names_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = 3
CHANCE = 0.95  # probability that a fraction lies between `least` and `most` if the promise holds


@dataclass(frozen=True, eq=False, repr=False)
class Coverage:
    """The fraction of targets inside their intervals, for all rows and for groups of rows; prints as a table.

    Attributes:
        table: a data frame with a row for each group, and one for "all" rows: the number of `rows`, the
            fraction `inside`, and the range from `least` to `most` where 95 of 100 such fractions lie if the
            promise holds. With several outputs, their names are the first level of the index.
        coverage: the promised fraction.
        by: what groups the rows.
    """

    table: pd.DataFrame
    coverage: float
    by: Any

    def plot(self, axes: Axes | None = None, **options: Any) -> Axes:
        """Plot the fraction inside for every group, its range by chance in grey, and the promise dashed.

        Args:
            axes: where to draw; None: a new figure.
            options: options of matplotlib for the points, such as `label` and `color`.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        if axes is None:
            axes = require_package("matplotlib.pyplot", "matplotlib", "plot a coverage").subplots()[1]
        assert axes is not None
        shown = self.table[self.table.index.get_level_values(-1) != ALL]
        places = np.arange(len(shown))
        axes.hlines(places, shown["least"], shown["most"], color="#8C8C8C", linewidth=2, zorder=0)
        axes.axvline(self.coverage, color="#4D4D4D", linestyle="--", linewidth=1, zorder=0)
        axes.plot(shown["inside"], places, **{"marker": "o", "linestyle": "none"} | options)
        names = [" ".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in shown.index]
        axes.set_yticks(places, names)
        axes.set(xlabel="share inside", ylabel=str(self.by), ylim=(len(shown) - 0.5, -0.5))
        return axes

    def __repr__(self) -> str:
        return str(self.table.round(2))

    def _repr_html_(self) -> str:
        return str(self.table.round(2).to_html())


ALL = "all"


def coverage(model: Any, X: Any, y: Any, by: Any = "prediction", coverage: float = 0.9) -> Coverage:
    """Count how many targets lie inside their intervals, for all rows and for groups of rows.

    Args:
        model: a fitted model with `predict(X, return_interval=)`: a `BayesianRegressor`, or a pipeline that
            ends with one.
        X: inputs `[N, D]` that were not used in training.
        y: their targets, `[N]` or `[N, O]`.
        by: what groups the rows. "prediction": thirds of the rows by predicted mean, for every output
            separately. The name or number of a column of X: thirds if it has more than three different
            numbers, otherwise a group for each value; rows without a value form their own group.
        coverage: probability of the central intervals, between 0 and 1.

    Returns:
        A `Coverage`: a table with a line for all rows and one for each group, of every output.

    Raises:
        TypeError: if the model predicts no intervals.
        ValueError: if the targets do not fit, the column does not exist, or `coverage` is not between 0 and
            1.

    >>> from gilib.sklearn import BayesianRegressor
    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> model = BayesianRegressor(steps=5, random_state=0).fit(x[::2], x[::2, 0])
    >>> coverage(model, x[1::2], x[1::2, 0], by=0).table["rows"].tolist()
    [30, 10, 10, 10]
    """
    try:
        predicted, lower, upper = model.predict(X, return_interval=coverage)
    except TypeError as error:
        if "return_interval" not in str(error):
            raise
        raise TypeError(
            f"{type(model).__name__} predicts no intervals: pass a BayesianRegressor, or a fitted "
            f"pipeline that ends with one ({error})"
        ) from error
    names = names_of(predicted)
    centre, low, high = (_columns(values) for values in (predicted, lower, upper))
    targets = as_targets(y, names, centre.shape, "only numbers have intervals")
    inside = (low <= targets) & (targets <= high)
    column = None if isinstance(by, str) and by == "prediction" else _column(X, by)
    tables = []
    for k, own in enumerate(inside.T):
        parts = list(_groups(centre[:, k] if column is None else column))
        rows = [np.ones(len(own), dtype=bool), *(members for _, members in parts)]
        counts = np.array([members.sum() for members in rows])
        shares = [own[members].mean() for members in rows]
        least, most = (binom.ppf(0.5 * (1.0 + side * CHANCE), counts, coverage) / counts for side in (-1, 1))
        index = pd.Index([ALL, *(name for name, _ in parts)])
        tables.append(pd.DataFrame({"rows": counts, "inside": shares, "least": least, "most": most}, index))
    outputs = names if isinstance(names, list) else range(len(tables))
    table = tables[0] if len(tables) == 1 else pd.concat(dict(zip(outputs, tables, strict=True)))
    return Coverage(table, coverage, by)


def _columns(values: Any) -> NDArray[Any]:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(len(array), -1)


def _column(X: Any, by: Any) -> Any:
    names = [*X.columns] if hasattr(X, "columns") else None
    if names is not None and by in names:
        return X[by]
    width = len(names) if names is not None else np.shape(as_array(X))[1]
    if not isinstance(by, int | np.integer) or isinstance(by, bool) or not -width <= by < width:
        there = names if names is not None else f"the numbers 0 to {width - 1}"
        raise ValueError(f"by must be 'prediction' or a column of X, which are {there}, got {by!r}")
    return X[names[by]] if names is not None else np.asarray(as_array(X))[:, by]


def _groups(column: Any) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the name of every group and its rows, `[N]`: thirds of numbers, or a group for every value."""
    values = pd.Series(np.asarray(column)).infer_objects()
    missing = values.isna().to_numpy()
    if is_numeric_dtype(values) and not is_bool_dtype(values) and values.nunique() > PARTS:
        thirds = pd.qcut(values, PARTS, labels=False, duplicates="drop")
        for third in sorted(thirds.dropna().unique()):
            members = (thirds == third).to_numpy()
            low, high = values[members].min(), values[members].max()
            yield f"{low:.4g} to {high:.4g}" if low < high else f"{low:.4g}", members
    else:
        words = values.astype(str).to_numpy()
        for value in values[~missing].astype(str).sort_values().unique():
            yield value, (words == value) & ~missing
    if missing.any():
        yield "missing", missing
