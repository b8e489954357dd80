"""Calibration, distances and prices against closed forms; ranks against scipy and Demšar (2006)."""

import math

import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from experiments.common.choosing import choose, priced
from experiments.comparisons import measures
from experiments.comparisons.measures import below, calibration_error, distance, distances, moments
from experiments.comparisons.ranking import Ranking, critical_difference, normal_range, not_told_apart, rank
from gilib.likelihoods.mixtures import GaussianPrediction
from tests.support import D, normals, refusals


def gaussian(sd, points):
    return GaussianPrediction(torch.zeros(1, points, 1, dtype=D), torch.full((1, points, 1), sd, dtype=D))


def test_the_distance_is_that_of_gaussians_by_their_quantile_functions():
    """W₂² = ∫₀¹ (F₁⁻¹(u) - F₂⁻¹(u))² du by the midpoint rule, whose tails bound the tolerance."""
    own = {"mean": [0.5, -1.0], "function_sd": [0.7, 0.0001], "sd": [0.9, 0.3]}
    truth = {"mean": [0.2, -1.0], "function_sd": [0.4, 2.0], "sd": [0.5, 2.2]}
    u = (torch.arange(10**6, dtype=D) + 0.5) / 10**6
    for of in ("function_sd", "sd"):
        expected = 0.0
        for n in range(2):
            first = Normal(own["mean"][n], own[of][n]).icdf(u)
            second = Normal(truth["mean"][n], truth[of][n]).icdf(u)
            expected += float((first - second).square().mean().sqrt()) / truth[of][n] / 2
        assert distance(own, truth, of) == pytest.approx(expected, rel=1e-4)


def test_a_point_at_the_truths_mean_is_at_distance_one_and_the_truth_at_none():
    truth = {"mean": [1.0, 2.0], "function_sd": [0.1, 3.0]}
    assert distance(truth | {"function_sd": [0.0, 0.0]}, truth, "function_sd") == 1.0
    assert distance(truth, truth, "function_sd") == 0.0
    with pytest.raises(ValueError, match="predictions of the same test points, got 1 and 2"):
        distance({"mean": [1.0], "sd": [1.0]}, {"mean": [1.0, 1.0], "sd": [1.0, 1.0]}, "sd")


def test_distances_are_taken_within_a_set_and_split():
    def record(dataset, split, method, mean, **rest):
        points = {"mean": [mean], "function_sd": [1.0]}
        config = {"dataset": dataset, "split": split, "method": method}
        return {"config": config, "metrics": {"rmse": 1.0}, "test_points": points, **rest}

    records = [
        record("yacht", 0, "map", 3.0),
        record("yacht", 0, "hmc", 1.0),
        record("yacht", 1, "map", 3.0),
        record("boston", 0, "hmc", 0.0),
        record("yacht", 0, "vogn", 1.0, diverged_at=3),
        {"config": {"dataset": "wine", "split": 0, "method": "gi"}, "metrics": {}},
    ]
    assert distances(records) == {("yacht", 0, "map"): 2.0}


def test_shares_below_quantiles_are_those_of_a_gaussian():
    """Targets at N equidistant quantiles: the share below the one of p is p to 1/N."""
    u = (torch.arange(200, dtype=D) + 0.5) / 200
    targets = Normal(0.0, 2.0).icdf(u)[:, None]
    shares = below(gaussian(2.0, 200), targets)
    assert all(abs(share - level) <= 1 / 200 for level, share in shares.items())
    assert calibration_error(shares) <= 1 / 200
    wide = below(gaussian(4.0, 200), targets)
    expected = [
        float(Normal(0.0, 2.0).cdf(Normal(0.0, 4.0).icdf(torch.tensor(level)))) for level in measures.LEVELS
    ]
    error = sum(abs(p - level) for p, level in zip(expected, measures.LEVELS, strict=True)) / len(
        measures.LEVELS
    )
    assert calibration_error(wide) == pytest.approx(error, abs=1 / 200)


def test_measures_in_the_units_of_the_data():
    targets, found = normals(50, 1), gaussian(1.5, 50)
    own = measures.measure(found, targets, torch.tensor(3.0, dtype=D))
    assert own["rmse"] == pytest.approx(3.0 * float(targets.square().mean().sqrt()))
    density = Normal(0.0, torch.tensor(4.5, dtype=D)).log_prob(3.0 * targets).mean()
    assert own["log_likelihood"] == pytest.approx(float(density))
    for name, inner in (("coverage_50", 0.6744898), ("coverage_90", 1.6448536)):
        assert own[name] == pytest.approx(float((targets.abs() <= 1.5 * inner).double().mean()))


def test_moments_tell_functions_from_noise():
    """Two functions at ±1, each N(±1, 0.5²) with the last layer integrated, and noise 0.3²."""
    means = torch.tensor([[[1.0]], [[-1.0]]], dtype=D)
    sd = torch.full_like(means, math.sqrt(0.25 + 0.09))
    found = moments(GaussianPrediction(means, sd), torch.tensor(0.09, dtype=D))
    assert found == {"mean": [0.0], "sd": [1.158], "function_sd": [1.118]}  # √1.34, √1.25
    members = moments(GaussianPrediction(means, torch.ones_like(sd)), torch.tensor([0.5, 0.7], dtype=D))
    assert members["function_sd"] == [1.183]  # √(1 + 1 - 0.6)


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
            (lambda given=given: critical_difference(*given), "two methods, one block and a level")
            for given in ((1, 5), (3, 0), (3, 5, 0.0), (3, 5, 1.0))
        ),
    ]
)


SCORES = {
    "bold": {"yacht": [2.0, 4.0], "wine": [None, 9.0]},
    "timid": {"yacht": [1.0, 1.0], "wine": [1.0, 1.0]},
    "even": {"yacht": [2.0, 2.5], "wine": [0.5, 0.5]},
}


def test_the_least_mean_loss_wins_and_divergence_never_does():
    choice = choose(SCORES)
    assert choice.setting == "even" and choice.losses == {"yacht": 0.75, "wine": 0.5}
    assert choice.loss == 0.625
    assert priced("timid", SCORES).losses == {"yacht": 2.0, "wine": 0.0}
    assert priced("bold", SCORES).losses == {"yacht": 0.0, "wine": math.inf}


def test_a_set_on_which_all_diverged_makes_every_price_infinite():
    nowhere = {name: own | {"naval": [None]} for name, own in SCORES.items()}
    assert priced("even", nowhere).loss == math.inf


BAD = ({}, {"a": {}}, {"a": {"yacht": []}}, {"a": {"yacht": [1.0]}, "b": {"wine": [1.0]}})
test_settings_must_have_scores_on_the_same_sets = refusals(
    [
        *((lambda bad=bad: choose(bad), "every setting needs scores on the same sets") for bad in BAD),
        (lambda: priced("none", SCORES), "none has no scores: choose one of"),
    ]
)
