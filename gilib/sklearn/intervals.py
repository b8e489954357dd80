"""Whether intervals hold what they promise, and for which rows they do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy.stats import binom
from sklearn.utils.validation import check_array

from gilib.optional import require_package
from gilib.sklearn.columns import as_array, check_numbers
from gilib.sklearn.estimator import names_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = 3
CHANCE = 0.95  # of which shares that keep the promise lie between `least` and `most`


@dataclass(frozen=True, eq=False, repr=False)
class Coverage:
    """The share of targets inside their intervals, of all rows and of groups of them; prints as a table.

    Attributes:
        table: a data frame with the columns `rows`, how many; `inside`, the share; `least` and `most`: from
            here to there lie 95 of 100 shares of so many rows whose intervals keep the promise. The index is
            "all" and the groups, of several outputs below their names.
        interval: the promise.
        by: what the groups are made of.
    """

    table: pd.DataFrame
    interval: float
    by: Any

    def plot(self, axes: Axes | None = None, **options: Any) -> Axes:
        """The shares of the groups as points, from `least` to `most` in grey, the promise dashed.

        Args:
            axes: where to draw, also what another model's `plot` gave; None: a new figure.
            options: of matplotlib for the points, as `label` and `color`.

        Raises:
            ImportError: without matplotlib.
        """
        if axes is None:
            axes = require_package("matplotlib.pyplot", "matplotlib", "plot a coverage").subplots()[1]
        assert axes is not None
        shown = self.table[self.table.index.get_level_values(-1) != ALL]
        places = np.arange(len(shown))
        axes.hlines(places, shown["least"], shown["most"], color="#BBBBBB", linewidth=6, alpha=0.5, zorder=0)
        axes.axvline(self.interval, color="#4D4D4D", linestyle="--", linewidth=1, zorder=0)
        axes.plot(shown["inside"], places, **{"marker": "o", "linestyle": "none"} | options)
        names = [" ".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in shown.index]
        axes.set_yticks(places, names)
        axes.set(xlabel="share inside", ylabel=str(self.by), ylim=(len(shown) - 0.5, -0.5))
        return axes

    def __repr__(self) -> str:
        """The table, two digits."""
        return str(self.table.round(2))

    def _repr_html_(self) -> str:
        return str(self.table.round(2).to_html())


ALL = "all"


def coverage(model: Any, X: Any, y: Any, by: Any = "prediction", interval: float = 0.9) -> Coverage:
    """How many targets lie inside their intervals, of all rows and of groups of them.

    An average that is right may hide rows whose intervals are too narrow, or uselessly wide.

    Args:
        model: what has `predict(X, return_interval=)`: a `BayesianRegressor`, or a pipeline with one at its
            end, fitted.
        X: inputs `[N, D]` that had no part in the training.
        y: their targets, `[N]` or `[N, O]`.
        by: "prediction": thirds of the rows by what is predicted, of every output by its own; or a column of
            X, its name or number: thirds if it has more than three numbers, else a group for every value;
            rows where it is missing are a group of their own.
        interval: probability of the central intervals, between 0 and 1.

    Returns:
        A table, a row for each group: how many rows it has, the share `inside`, and between which shares,
        `least` and `most`, 95 of 100 lie by chance if the promise holds.

    Raises:
        TypeError: for a model that predicts no intervals.
        ValueError: for targets that do not fit, a column that is not there, or another `interval`.

    >>> from gilib.sklearn import BayesianRegressor
    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> model = BayesianRegressor(steps=5, random_state=0).fit(x[::2], x[::2, 0])
    >>> coverage(model, x[1::2], x[1::2, 0], by=0).table["rows"].tolist()
    [30, 10, 10, 10]
    """
    try:
        predicted, lower, upper = model.predict(X, return_interval=interval)
    except TypeError as error:
        if "return_interval" not in str(error):
            raise
        raise TypeError(
            f"{type(model).__name__} predicts no intervals: hand over a BayesianRegressor, or a fitted "
            f"pipeline that ends with one ({error})"
        ) from error
    names = names_of(predicted)
    centre, low, high = (_columns(values) for values in (predicted, lower, upper))
    inside = (low <= (targets := _targets(y, names, centre.shape))) & (targets <= high)
    column = None if isinstance(by, str) and by == "prediction" else _column(X, by)
    tables = []
    for k, own in enumerate(inside.T):
        parts = list(_groups(centre[:, k] if column is None else column))
        rows = [np.ones(len(own), dtype=bool), *(members for _, members in parts)]
        counts = np.array([members.sum() for members in rows])
        shares = [own[members].mean() for members in rows]
        least, most = (binom.ppf(0.5 * (1.0 + side * CHANCE), counts, interval) / counts for side in (-1, 1))
        index = pd.Index([ALL, *(name for name, _ in parts)])
        tables.append(pd.DataFrame({"rows": counts, "inside": shares, "least": least, "most": most}, index))
    outputs = names if isinstance(names, list) else range(len(tables))
    table = tables[0] if len(tables) == 1 else pd.concat(dict(zip(outputs, tables, strict=True)))
    return Coverage(table, interval, by)


def _columns(values: Any) -> NDArray[Any]:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(len(array), -1)


def _targets(y: Any, names: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Targets `[N, O]`, the columns of a data frame in the order of the prediction's."""
    own = names_of(y)
    if isinstance(own, list) and isinstance(names, list):
        if set(own) != set(names):
            raise ValueError(f"y must have the columns {names}, got {own}")
        y = y[names]
    check_numbers(y, "y", "intervals are of numbers")
    targets = _columns(check_array(as_array(y), ensure_2d=False, dtype=np.float64, input_name="y"))
    if targets.shape != shape:
        raise ValueError(
            f"y must hold {list(shape)} targets, one row for each of X, got {list(targets.shape)}"
        )
    return targets


def _column(X: Any, by: Any) -> Any:
    """A column of a table by its name, or by its number.

    Raises:
        ValueError: if it is not there.
    """
    names = [*X.columns] if hasattr(X, "columns") else None
    if names is not None and by in names:
        return X[by]
    width = len(names) if names is not None else np.shape(as_array(X))[1]
    if not isinstance(by, int | np.integer) or isinstance(by, bool) or not -width <= by < width:
        there = names if names is not None else f"the numbers 0 to {width - 1}"
        raise ValueError(f"by must be 'prediction' or a column of X, which are {there}, got {by!r}")
    return X[names[by]] if names is not None else np.asarray(as_array(X))[:, by]


def _groups(column: Any) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Names of groups and the rows in each, `[N]`: thirds of numbers, else one for every value."""
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
