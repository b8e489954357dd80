"""Paired statistics against brute force and scipy."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.lindinger2020 import comparing
from tests.support import refusals

SOME = st.lists(st.floats(-10.0, 10.0, allow_subnormal=False), min_size=1, max_size=8)


def record(repetition, likelihoods, *, score=0.0, scale="reduced", **fields):
    """What a pair is made of."""
    config = {"dataset": "boston", "task": "extrapolation", "repetition": repetition}
    body = {"metrics": {"test_log_likelihood": score}, "test_points": {"log_likelihood": likelihoods}}
    return {"id": f"id{repetition}", "scale": scale, "config": config, **body, **fields}


def test_a_frequency_counts_points_and_halves_ties():
    ours, theirs = record(0, [1.0, 2.0, 3.0, 4.0]), record(0, [0.0, 2.0, 5.0, 3.0])
    assert comparing.frequency(ours, theirs) == 2.5 / 4
    assert comparing.frequency(theirs, ours) == 1.5 / 4


OTHERS = record(1, [0.0, 0.0]), record(0, [0.0]), record(0, [0.0, 0.0], scale="paper")
OWN, APART = record(0, [1.0, 2.0]), "records id0 and id. are not of the same test points"
test_what_cannot_be_compared = refusals(
    [
        *((lambda other=other: comparing.frequency(OWN, other), APART) for other in OTHERS),
        (lambda: comparing.sign_flip([1.0, float("nan")]), "finite differences"),
    ]
)


def test_pairs_are_of_one_repetition_and_scale():
    broken = {"metrics": {}, "diverged_at": 3}
    ours = [record(2, [2.0]), record(0, [0.0]), record(1, [1.0]), record(3, [3.0]), record(4, [4.0])]
    theirs = [record(0, [9.0]), record(0, [5.0]), record(2, [7.0])]  # the later one counts
    theirs += [record(3, [0.0]) | broken, record(4, [0.0], scale="paper"), record(1, [1.0])]
    ours[2] |= broken
    found = comparing.pairs(ours, theirs)
    assert [a["config"]["repetition"] for a, _ in found] == [0, 2]
    assert [b["test_points"]["log_likelihood"] for _, b in found] == [[5.0], [7.0]]


def test_both_quantities_over_repetitions():
    ours = [record(k, [1.0, 1.0, 1.0], score=float(k)) for k in range(3)]
    theirs = [record(k, [0.0] * k + [2.0] * (3 - k), score=0.5) for k in range(3)]
    assert comparing.frequencies(ours, theirs).values == pytest.approx((0.0, 1 / 3, 2 / 3))
    found = comparing.differences(ours, theirs)
    assert found.values == (-0.5, 0.5, 1.5)
    assert found.mean == 0.5 and found.error == pytest.approx(stats.sem(found.values))
    assert found.p_value() == comparing.sign_flip(found.values)
    assert found.p_value(null=0.5) == 1.0


@settings(deadline=None, max_examples=60)
@given(values=SOME)
def test_the_p_value_is_that_of_all_signs(values):
    """By brute force over sign matrices; sums that agree up to rounding count as equal."""
    flips = np.array(list(itertools.product([1.0, -1.0], repeat=len(values)))) @ np.array(values)
    near = 1e-9 * np.abs(values).sum()
    least, most = (np.mean(np.abs(flips) >= abs(sum(values)) + sign * near) for sign in (1, -1))
    assert least <= comparing.sign_flip(values) <= most


@settings(deadline=None)
@given(values=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9), factor=st.floats(0.1, 10.0))
def test_the_least_p_value_is_that_of_one_sign(values, factor):
    assert comparing.sign_flip(values) == comparing.least_p_value(len(values))
    assert comparing.sign_flip([-factor * value for value in values]) == comparing.sign_flip(values)


@pytest.mark.parametrize(("plus", "minus"), [(30, 20), (24, 24)])
def test_of_more_values_it_is_that_of_random_signs(plus, minus):
    """Within five standard deviations of a share of a million; the same at every call."""
    values, expected = [1.0] * plus + [-1.0] * minus, stats.binomtest(plus, plus + minus).pvalue
    found = comparing.sign_flip(values)
    assert found == pytest.approx(expected, abs=5 * (expected * (1 - expected) / 2**20) ** 0.5 + 2e-6)
    assert found == comparing.sign_flip(values)
