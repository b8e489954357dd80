"""What estimators say about frames that they cannot read as numbers, and about rows in another order."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from gilib.sklearn import BayesianClassifier, BayesianRegressor
from gilib.sklearn.columns import BETWEEN, DATES, DECIMALS, EITHER, GAPS
from tests.sklearn.test_estimators import QUICK

ROWS = 300
X = pd.DataFrame(np.random.default_rng(0).normal(size=(ROWS, 2)), columns=["speed", "load"])
Y = X["speed"] - X["load"] ** 2
WORDS = "pandas.get_dummies"


def mixed(*cells):
    return [*cells, *["3"] * (ROWS - len(cells))]


COLUMNS = {
    "words": ("oak", WORDS),
    "dates": (pd.Timestamp("2026-01-01"), DATES),
    "decimals": ("3,5", DECIMALS),
    "decimals or thousands": ("1,234", EITHER),
    "thousands": (["1,234,567", "12", "1,000"] * (ROWS // 3), BETWEEN),
    "several commas, no thousands": ("1,2,3", WORDS),
    "a question mark": (mixed("?"), GAPS),
    "numbers and a word": ([1.5] * (ROWS - 1) + ["n/a"], GAPS),
    "dates as words": ("2026-01-31", DATES),
    "dates of Python": (datetime.date(2026, 1, 31), DATES),
    "thousands with points": (["1,234.50", "999.00"] * (ROWS // 2), BETWEEN),
    "decimal commas with thousands": (["1.234,5", "12,3"] * (ROWS // 2), DECIMALS),
    "words and gaps": (["oak", None, np.nan] * (ROWS // 3), WORDS),
    "lists": ([[1]] * ROWS, WORDS),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_gets_the_advice_that_helps(name):
    cells, advice = COLUMNS[name]
    with pytest.raises(ValueError, match=r"could not convert the columns \['kind'\] of X") as caught:
        BayesianRegressor(**QUICK).fit(X.assign(kind=cells), np.arange(ROWS) % 2)
    assert f"to numbers: {advice}" in str(caught.value)


def test_rows_in_another_order_are_noticed():
    (said,) = warnings_of(X, Y[::-1], "same index in another order")
    assert "y.loc[X.index]" in said
    for y in (Y, Y.set_axis(range(1, ROWS + 1))):
        assert not warnings_of(X, y, "same index in another order")


class Polars:
    """What of a frame of polars is looked at: it is no dependency."""

    def __init__(self, **columns):
        self.data = {name: np.asarray(values) for name, values in columns.items()}
        self.columns, self.shape = list(self.data), (ROWS, len(columns))

    def __getitem__(self, name):
        return self.data[name]

    def __len__(self):
        return ROWS

    def __array__(self, dtype=None, copy=None):
        return np.stack(list(self.data.values()), 1).astype(dtype)


TIMES = np.arange(ROWS).astype("M8[D]")
GAPPED = np.where(np.arange(ROWS) == 5, np.datetime64("NaT"), TIMES)
MASKED = np.ma.masked_array(X.to_numpy(), mask=np.arange(2 * ROWS).reshape(ROWS, 2) == 7)
FAULTS = {"kind": "oak", "day": pd.Timestamp("2026-01-01"), "price": "3,5", "grade": "3", "make": "ash"}
FAULTY = X.assign(**FAULTS, sure=True)
TWICE = pd.concat([X.assign(kind="3,5"), X.assign(kind=1.0)], axis=1)
WEAR = pd.DataFrame({"drift": Y, "wear": "much"})
ADVISED = r"\['wear'\] of y to numbers: BayesianClassifier"
REFUSED = {  # inputs and targets, or inputs alone of a classifier
    "faults are told apart": ((FAULTY, Y), rf"'make'\] of X to numbers: {WORDS}.*; nor \['day'\] .*'price"),
    "a name that is there twice": ((TWICE, Y), r"\['kind'\] .* commas"),
    "targets of words": ((X, WEAR), ADVISED),
    "a series of words": ((X, WEAR["wear"]), ADVISED),
    "masked entries": ((MASKED, Y), "X holds 1 masked entries"),  # numpy would hand over what is masked
    "masked targets": ((X, np.ma.masked_array(Y, np.arange(ROWS) < 2)), "y holds 2 masked entries"),
    "one class": ((X, np.zeros(ROWS), BayesianClassifier), r"one class only: 0\.0$"),
    "infinity": (([[1.0, 1e200], [1.0, np.inf]], [0, 1]), r"X holds 2 infinite or huge values in .* \[1\]"),
    "an array of times": (TIMES[:, None], r"columns \[0\] of X to numbers: dates"),
    "an array of durations": (TIMES[:, None] - TIMES[0], r"columns \[0\] of X to numbers: durations"),
    "a list": ([[1.5, day] for day in TIMES.tolist()], r"columns \[1\] of X to numbers: dates"),
    "an array of words": (np.array([["1.5", "oak"]] * ROWS), rf"columns \[1\] of X to numbers: {WORDS}"),
    "times of polars": (Polars(a=np.ones(ROWS), day=TIMES, more=GAPPED), r"'day', 'more'\] of X .*: dates"),
    "words of polars": (Polars(tree=np.array(["oak"] * ROWS, object)), rf"\['tree'\] of X .*: {WORDS}"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    given, message = REFUSED[name]
    x, y, *kind = given if isinstance(given, tuple) else (given, np.arange(ROWS) % 2, BayesianClassifier)
    with pytest.raises(ValueError, match=message):
        (*kind, BayesianRegressor)[0](**QUICK).fit(x, y)


def test_times_are_no_targets():
    model = BayesianRegressor(**(QUICK | {"steps": 2})).fit(X, Y)
    for wrong, advice in ((TIMES, "dates"), (GAPPED, "dates"), (TIMES - TIMES[0], "durations")):
        for use in (BayesianRegressor(**QUICK).fit, model.score, model.log_prob):
            with pytest.raises(ValueError, match=rf"columns \[0\] of y to numbers: {advice}"):
                use(X, wrong)


def test_missing_values_are_told_by_column_in_a_line():
    gapped = X.mask(X > 2)
    count = int(gapped["load"].isna().sum())
    gapped["speed"] = X["speed"]
    told = rf"X holds {count} missing values \(NaN\) in columns \['load'\]: .*SimpleImputer"
    model = BayesianRegressor(**(QUICK | {"steps": 2}))
    for use in (lambda x: model.fit(x, Y), model.fit(X, Y).predict):
        with pytest.raises(ValueError, match=told) as caught:
            use(gapped)
        assert "\n" not in str(caught.value) and "HistGradient" not in str(caught.value)


@pytest.mark.parametrize("gap", [None, pd.NA, np.nan])
def test_labels_that_are_missing(gap):
    labels = ["oak", gap, "ash"] * (ROWS // 3)
    for y in (pd.Series(labels, dtype="string"), pd.Series(labels, dtype=object), np.array(labels, object)):
        with pytest.raises(ValueError, match="y holds 100 missing labels"):
            BayesianClassifier(**QUICK).fit(X, y)


def test_tensors_of_every_kind():
    """With gradients, and of a precision that numpy does not have."""
    x, y = torch.tensor(X.to_numpy(), requires_grad=True), torch.tensor(Y.to_numpy(), requires_grad=True)
    quick = QUICK | {"steps": 2}
    model, plain = BayesianRegressor(**quick).fit(x, y), BayesianRegressor(**quick).fit(X.to_numpy(), Y)
    assert np.array_equal(model.predict(x), plain.predict(X.to_numpy()))
    assert model.score(x, y) == plain.score(X.to_numpy(), Y)
    assert np.array_equal(model.log_prob(x, y), plain.log_prob(X.to_numpy(), Y))
    labels = (y > 0).detach().long()
    classifier = BayesianClassifier(**quick).fit(x.bfloat16(), labels)
    assert classifier.predict(x.bfloat16()).dtype == np.int64
    assert classifier.log_prob(x, labels).shape == (ROWS,)


def warnings_of(x, y, words="nearly equal", kind=BayesianRegressor):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind(**(QUICK | {"steps": 2})).fit(x, y)
    return [str(warning.message) for warning in caught if words in str(warning.message)]


@pytest.mark.parametrize("far", [1e6, -9999.0])
def test_a_value_far_from_all_others_is_told(far):
    spoiled = X.copy()
    spoiled.loc[7, "load"] = far
    for x, column in ((spoiled, "'load' of X"), (spoiled.to_numpy(), "1 of X")):
        (told,) = warnings_of(x, Y > 0, kind=BayesianClassifier)
        assert told.startswith(f"column {column} holds {far:g}")
    spoiled.loc[:30, "load"] = far  # a code for what is missing
    assert len(warnings_of(spoiled, Y)) == 1
    (told,) = warnings_of(X, Y.where(X.index != 7, far))
    assert told.startswith("column 0 of y")


def test_columns_of_other_shapes_are_not():
    rng = np.random.default_rng(0)
    heavy = np.stack([rng.standard_t(2, ROWS), np.exp(2 * rng.normal(size=ROWS)), np.arange(ROWS) ** 3], 1)
    rare = np.stack([np.arange(ROWS) == 7, np.arange(ROWS) < 3, np.full(ROWS, 1e6)], 1)
    assert not warnings_of(np.concatenate([heavy, rare], 1), Y)
