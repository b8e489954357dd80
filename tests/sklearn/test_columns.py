"""What estimators say about frames that they cannot read as numbers, and about rows in another order."""

import datetime
import io
import warnings

import numpy as np
import pandas as pd
import pytest

from gilib.sklearn import BayesianClassifier, BayesianRegressor
from gilib.sklearn.columns import BETWEEN, DATES, DECIMALS, DURATIONS, EITHER, GAPS, check_numbers
from tests.sklearn.test_estimators import QUICK

ROWS = 300
X = pd.DataFrame(np.random.default_rng(0).normal(size=(ROWS, 2)), columns=["speed", "load"])
Y = X["speed"] - X["load"] ** 2
WORDS = "pandas.get_dummies"


def mixed(*cells):
    """Some cells, then a number as a word."""
    return [*cells, *["3"] * (ROWS - len(cells))]


COLUMNS = {
    "words": ("oak", WORDS),
    "dates": (pd.Timestamp("2026-01-01"), DATES),
    "dates with a zone": (pd.Timestamp("2026-01-01", tz="UTC"), DATES),
    "decimals": ("3,5", DECIMALS),
    "negative decimals": ("-0,25", DECIMALS),
    "decimals and whole numbers": (["3,5", "4"] * (ROWS // 2), DECIMALS),
    "decimals or thousands": ("1,234", EITHER),
    "thousands": (["1,234,567", "12", "1,000"] * (ROWS // 3), BETWEEN),
    "a decimal that is no thousand": (["1,234", "1,23"] * (ROWS // 2), DECIMALS),
    "several commas, no thousands": ("1,2,3", WORDS),
    "a question mark": (mixed("?"), GAPS),
    "a dash": (mixed("-"), GAPS),
    "an empty cell": (mixed(""), GAPS),
    "numbers and a word": ([1.5] * (ROWS - 1) + ["n/a"], GAPS),
    "dates as words": ("2026-01-31", DATES),
    "days as words": ("31.1.2026", DATES),
    "dates of Python": (datetime.date(2026, 1, 31), DATES),
    "durations": (pd.Timedelta("3h"), DURATIONS),
    "thousands with points": (["1,234.50", "999.00"] * (ROWS // 2), BETWEEN),
    "decimal commas with thousands": (["1.234,5", "12,3"] * (ROWS // 2), DECIMALS),
    "words and gaps": (["oak", None, np.nan] * (ROWS // 3), WORDS),
    "lists": ([[1]] * ROWS, WORDS),
    "mostly words": (["oak", "ash", "3"] * (ROWS // 3), WORDS),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])
def test_a_column_gets_the_advice_that_helps(name, kind):
    cells, advice = COLUMNS[name]
    with pytest.raises(ValueError, match=r"could not convert the columns \['kind'\] of X") as caught:
        kind(**QUICK).fit(X.assign(kind=cells), np.arange(ROWS) % 2)
    assert f"to numbers: {advice}" in str(caught.value)


def test_columns_with_different_faults_are_told_apart():
    wrong = X.assign(
        kind="oak", day=pd.Timestamp("2026-01-01"), price="3,5", grade="3", sure=True, make="ash"
    )
    message = rf"\['kind', 'make'\] of X to numbers: {WORDS}.*; nor \['day'\] of X .*; nor \['price'\] of X"
    with pytest.raises(ValueError, match=message):
        BayesianRegressor(**QUICK).fit(wrong, Y)


def test_a_name_that_is_there_twice():
    duplicated = pd.concat([X.assign(kind="3,5"), X.assign(kind=1.0)], axis=1)
    with pytest.raises(ValueError, match=r"\['kind'\] .* commas"):
        BayesianRegressor(**QUICK).fit(duplicated, Y)


def test_the_advice_leads_to_numbers():
    """What is said about each, done: numbers that are refused no longer."""
    text = 'a;b;c;d\n"1,5";"1,234";?;2026-01-01\n"2,5";"2,000,000";3;2026-01-03\n'
    frame = pd.read_csv(io.StringIO(text), sep=";")
    with pytest.raises(ValueError, match="could not convert"):
        check_numbers(frame, "X", WORDS)
    days = pd.to_datetime(frame["d"])
    found = pd.DataFrame(
        {
            "a": pd.read_csv(io.StringIO(text), sep=";", usecols=["a"], decimal=",")["a"],
            "b": pd.read_csv(io.StringIO(text), sep=";", usecols=["b"], thousands=",")["b"],
            "c": pd.to_numeric(frame["c"], errors="coerce"),
            "d": (days - days.min()).dt.days,
        }
    )
    check_numbers(found, "X", WORDS)
    assert found.fillna(-1).to_numpy().tolist() == [[1.5, 1234, -1, 0], [2.5, 2_000_000, 3, 2]]


def test_targets_of_words_lead_to_the_classifier():
    both = pd.DataFrame({"drift": Y, "wear": "much"})
    for wrong in (both, both["wear"]):
        with pytest.raises(ValueError, match=r"columns \['wear'\] of y to numbers: BayesianClassifier"):
            BayesianRegressor(**QUICK).fit(X, wrong)


def test_one_class_is_named_as_it_was_given():
    with pytest.raises(ValueError, match=r"one class only: 0\.0$"):
        BayesianClassifier(**QUICK).fit(X, np.zeros(ROWS))


@pytest.mark.parametrize("order", ["another order", "the same", "other labels"])
def test_rows_in_another_order_are_noticed(order):
    shuffled = {"another order": Y[::-1], "the same": Y, "other labels": Y.set_axis(range(1, ROWS + 1))}[
        order
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BayesianRegressor(**QUICK).fit(X, shuffled)
    said = [str(warning.message) for warning in caught if "another order" in str(warning.message)]
    assert len(said) == (order == "another order")
    assert all("y.loc[X.index]" in text for text in said)


def test_masked_entries_are_no_numbers():
    """numpy would hand over what stands below the mask."""
    x, y = X.to_numpy(), Y.to_numpy()
    hidden = np.ma.masked_array(x, mask=np.arange(x.size).reshape(x.shape) == 7)
    with pytest.raises(ValueError, match="X holds 1 masked entries"):
        BayesianRegressor(**QUICK).fit(hidden, y)
    with pytest.raises(ValueError, match="y holds 2 masked entries"):
        BayesianRegressor(**QUICK).fit(x, np.ma.masked_array(y, mask=np.arange(len(y)) < 2))
