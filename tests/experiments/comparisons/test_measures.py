"""Calibration and the distance to HMC against closed forms."""

import math

import pytest
import torch
from torch.distributions import Normal

from experiments.comparisons import measures
from experiments.comparisons.measures import below, calibration_error, distance, distances, moments
from gilib.likelihoods.mixtures import GaussianPrediction
from tests.support import D, normals


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
