"""Quantiles of mixtures against scipy's root finder, and against the closed form of one component."""

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from gilib.likelihoods.mixtures import GaussianPrediction
from tests.support import D, assert_equal, normals

MEANS = torch.cat([2.0 * normals(50, 4, 1), normals(50, 1, 1, seed=1) + 30.0 * (normals(50, 1, 1) > 0)], 1)
SD = normals(50, 5, 1, seed=2).abs() + 0.05  # the last point has two modes, far apart


@pytest.mark.parametrize("probability", [1e-9, 0.3, 0.62, 1 - 1e-9])
def test_the_distribution_function_is_inverted(probability):
    found = GaussianPrediction(MEANS, SD).quantile(probability)
    for n in range(MEANS.shape[1]):
        m, s = MEANS[:, n, 0].numpy(), SD[:, n, 0].numpy()

        def excess(x, m=m, s=s):
            if probability > 0.5:  # from above, where it has the digits
                return (1.0 - probability) - norm.sf((x - m) / s).mean()
            return norm.cdf((x - m) / s).mean() - probability

        assert float(found[n]) == pytest.approx(brentq(excess, -100, 100, xtol=1e-13, rtol=1e-13), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("probability", [1e-12, 0.1, 0.5, 1 - 1e-8])
def test_tails_of_one_component(dtype, probability):
    """To the digits of the dtype, where float32 alone would end at five standard deviations."""
    mean, sd = torch.full((1, 2, 1), 3.0, dtype=dtype), torch.full((1, 2, 1), 0.5, dtype=dtype)
    found = GaussianPrediction(mean, sd).quantile(probability)
    assert found.dtype == dtype
    wanted = (
        3.0 + 0.5 * norm.ppf(probability) if probability < 0.5 else 3.0 + 0.5 * norm.isf(1.0 - probability)
    )
    assert_equal(found, torch.full((2, 1), wanted, dtype=dtype), 1e-12 if dtype == D else 1e-6)


@pytest.mark.parametrize("probability", [1e-6, 1e-16, 1e-300])
def test_far_tails_of_two_components(probability):
    """Of two components far apart one has each tail, at twice the probability: ndtr has no digits there."""
    means = torch.tensor([-5.0, 5.0], dtype=D)[:, None, None]
    pair = GaussianPrediction(means, torch.full((2, 1, 1), 0.5, dtype=D))
    wanted = -5.0 + 0.5 * norm.ppf(2.0 * probability)
    assert_equal(pair.quantile(probability), torch.full((1, 1), wanted, dtype=D), 1e-13)
    if probability > 1e-12:  # whose distance from 1 has digits
        above = 1.0 - probability
        wanted = 5.0 + 0.5 * norm.isf(2.0 * (1.0 - above))
        assert_equal(pair.quantile(above), torch.full((1, 1), wanted, dtype=D), 1e-13)


def test_no_number_stays_none():
    means = torch.where(torch.arange(3)[None, :, None] == 1, torch.nan, MEANS[:, :3])
    found = GaussianPrediction(means, SD[:, :3]).quantile(0.2)
    assert found[1].isnan().all()
    assert_equal(found[[0, 2]], GaussianPrediction(MEANS[:, :3], SD[:, :3]).quantile(0.2)[[0, 2]], 1e-12)
