"""Ranks and critical differences against scipy's tests and the numbers that Demšar (2006) prints."""

import math

import pytest
import torch
from scipy import stats

from experiments.comparisons.ranking import Ranking, critical_difference, normal_range, not_told_apart, rank
from tests.support import normals, refusals

PRINTED = {  # Demšar (2006), Table 5a
    0.05: (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164),
    0.10: (1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920),
}


def scores(blocks, methods, levels=None, seed=0):
    """Random ones; with few levels there are ties."""
    found = normals(blocks, methods, seed=seed)
    if levels:
        found = (found * levels).round()
    return [{f"m{k}": float(value) for k, value in enumerate(row)} for row in found]


@pytest.mark.parametrize("levels", [None, 1])
def test_the_statistic_and_ranks_are_scipys(levels):
    blocks = scores(7, 5, levels)
    found = rank(blocks)
    columns = [[block[name] for block in blocks] for name in blocks[0]]
    assert found.statistic == pytest.approx(stats.friedmanchisquare(*columns).statistic, rel=1e-12)
    for n, block in enumerate(blocks):
        expected = stats.rankdata([-value for value in block.values()])
        assert [found.ranks[name][n] for name in block] == list(expected)


@pytest.mark.parametrize("level", PRINTED)
def test_quantiles_are_the_printed_ones(level):
    found = [normal_range(k, level) for k in range(2, 11)]
    # the paper's last digits are off by one here and there: it divides a table of three digits by √2
    assert found == pytest.approx(PRINTED[level], abs=0.0012)


def test_the_p_value_is_that_of_a_two_way_analysis_of_variance_of_ranks():
    """Iman and Davenport's F is the ordinary F of the ranks, methods against residuals."""
    found = rank(scores(6, 4, seed=3))
    table = torch.tensor(list(found.ranks.values()), dtype=torch.float64)  # [k, N], blocks have one mean
    k, n = table.shape
    methods = n * (table.mean(1) - table.mean()).square().sum()
    rest = (table - table.mean()).square().sum() - methods
    value = (methods / (k - 1)) / (rest / ((k - 1) * (n - 1)))
    assert found.p_value == pytest.approx(stats.f.sf(float(value), k - 1, (k - 1) * (n - 1)), rel=1e-10)


def test_blocks_that_agree_are_certain_equal_methods_are_not_and_what_broke_down_ranks_last():
    agreed = rank([{"a": 2.0, "b": 1.0, "c": 0.0}] * 3)
    assert agreed.statistic == pytest.approx(6.0) and agreed.p_value == 0.0
    equal = rank([{"a": 1.0, "b": 1.0}] * 3)
    assert equal.statistic == 0.0 and equal.p_value == 1.0
    found = rank([{"a": None, "b": -1e9, "c": None}])
    assert found.ranks == {"a": (2.5,), "b": (1.0,), "c": (2.5,)}


def test_bars_join_those_that_are_near_and_no_bar_lies_in_another():
    means = {"d": 3.9, "a": 1.0, "b": 1.5, "c": 2.4, "e": 9.0}
    assert not_told_apart(means, 1.51) == [("a", "b", "c"), ("c", "d")]
    assert not_told_apart(means, 0.1) == []
    assert not_told_apart(means, 100.0) == [("a", "b", "c", "d", "e")]


test_what_cannot_be_ranked = refusals(
    [
        *(
            (lambda blocks=blocks: rank(blocks), "same two methods or more in every block.*leave out")
            for blocks in ([], [{"a": 1.0}], [{"a": 1.0, "b": 2.0}, {"a": 1.0, "c": 2.0}])
        ),
        (lambda: rank([{"a": 1.0, "b": math.nan}]), r"must be numbers.*nan of \['b'\]"),
        (lambda: Ranking({"a": (1.0,), "b": (2.0,)}).p_value, "at least two blocks, got 1"),
        *(
            (
                lambda given=given: critical_difference(*given),
                "two methods, one block and a level",
            )
            for given in ((1, 5), (3, 0), (3, 5, 0.0), (3, 5, 1.0))
        ),
    ]
)
