"""Predictive mixtures and their quantiles against scipy; samples and members pooled."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats
import torch

import gilib
from gilib.prediction import GaussianPrediction
from tests.support import D, assert_equal, normals

N, OUTPUTS = 3, 2
MEANS = 2 * normals(4, N, OUTPUTS, seed=1)
NOISE = torch.tensor([0.3, 0.8], dtype=D).expand(1, N, OUTPUTS)
MIXTURE = GaussianPrediction(MEANS, NOISE)


def test_a_replica_that_failed_is_no_number_and_spoils_no_other():
    y = normals(N, OUTPUTS, seed=2)
    found = GaussianPrediction(torch.stack([MEANS, torch.full_like(MEANS, math.nan)], 1), NOISE)
    for (healthy, failed), alone in (
        (found.log_prob(y), MIXTURE.log_prob(y)),
        (found.quantile(0.2), MIXTURE.quantile(0.2)),
    ):
        assert_equal(healthy, alone, 1e-12)
        assert failed.isnan().all()


@pytest.mark.parametrize("shape", [(N,), (N, 1), (N + 1, OUTPUTS), (1, OUTPUTS)])
def test_targets_of_the_wrong_count(shape):
    with pytest.raises(ValueError, match=r"targets must have shape \[3, 2\]"):
        MIXTURE.log_prob(normals(*shape))


SPREAD = normals(4, 2, N, OUTPUTS, seed=3)
SD = 0.1 + normals(4, 2, N, OUTPUTS, seed=4).abs()


@pytest.mark.parametrize(
    "shape", [(4, 2, N, OUTPUTS), (1, 2, 1, 1), (4, 1, 1, OUTPUTS), (N, 1), (), (OUTPUTS,)]
)
def test_components_of_their_own_width(shape):
    """A standard deviation for every sample, replica, point and output, or for some of these."""
    sd = SD.flatten()[: math.prod(shape)].reshape(shape)
    mixture, y = GaussianPrediction(SPREAD, sd), normals(2, N, OUTPUTS, seed=5)
    full, means = sd.expand_as(SPREAD).numpy(), SPREAD.numpy()
    density = scipy.stats.norm(means, full).pdf(y.numpy())
    assert_equal(mixture.log_prob(y), np.log(density.prod(-1).mean(0)), 1e-10)
    assert_equal(mixture.sd, np.sqrt((full**2 + means**2).mean(0) - means.mean(0) ** 2), 1e-10)
    below = scipy.stats.norm(means, full).cdf(mixture.quantile(0.3).numpy()).mean(0)
    assert_equal(torch.tensor(below), torch.full((2, N, OUTPUTS), 0.3, dtype=D), 1e-10)


@pytest.mark.parametrize("shape", [(3, 2, N, OUTPUTS), (2, OUTPUTS), (1, 1, 1, 1, 1)])
def test_components_that_do_not_fit(shape):
    with pytest.raises(ValueError, match=r"component_sd must be broadcastable to means \[4, 2, 3, 2\], got"):
        GaussianPrediction(SPREAD, torch.ones(shape, dtype=D))


def test_members_are_pooled_with_samples():
    """Four samples of two members are eight components; members come fastest."""
    y, width = normals(N, OUTPUTS, seed=5), torch.tensor([0.3, 0.8], dtype=D)[:, None, None]
    pooled = GaussianPrediction(SPREAD, width.expand(1, 2, 1, OUTPUTS)).pooled(1)
    by_hand = GaussianPrediction(SPREAD.flatten(0, 1), width.repeat(4, 1, 1))
    assert torch.equal(pooled.means, by_hand.means) and pooled.mean.shape == (N, OUTPUTS)
    assert_equal(pooled.log_prob(y), by_hand.log_prob(y))
    assert_equal(pooled.sd, by_hand.sd)
    classes = gilib.prediction.CategoricalPrediction(SPREAD.log_softmax(-1))
    assert_equal(classes.pooled(1).mean, SPREAD.softmax(-1).mean((0, 1)))
    assert torch.equal(classes.pooled(0).mean, classes.mean)
    assert torch.equal(classes.classes, classes.mean.argmax(-1))
    assert_equal(classes.entropy, -(classes.mean * classes.mean.log()).sum(-1))


CENTRES = torch.cat([2.0 * normals(50, 4, 1), normals(50, 1, 1, seed=1) + 30.0 * (normals(50, 1, 1) > 0)], 1)
WIDTHS = normals(50, 5, 1, seed=2).abs() + 0.05  # the last point has two modes, far apart


@pytest.mark.parametrize("probability", [1e-9, 0.3, 0.62, 1 - 1e-9])
def test_the_distribution_function_is_inverted(probability):
    found = GaussianPrediction(CENTRES, WIDTHS).quantile(probability)
    for n in range(CENTRES.shape[1]):
        m, s = CENTRES[:, n, 0].numpy(), WIDTHS[:, n, 0].numpy()

        def excess(x, m=m, s=s):
            if probability > 0.5:  # from above, where it has the digits
                return (1.0 - probability) - scipy.stats.norm.sf((x - m) / s).mean()
            return scipy.stats.norm.cdf((x - m) / s).mean() - probability

        root = scipy.optimize.brentq(excess, -100, 100, xtol=1e-13, rtol=1e-13)
        assert float(found[n]) == pytest.approx(root, abs=1e-9)


@pytest.mark.parametrize("probability", [1e-6, 1e-16, 1e-300])
def test_far_tails_of_two_components(probability):
    """Of two components far apart one has each tail, at twice the probability: ndtr has no digits there."""
    means = torch.tensor([-5.0, 5.0], dtype=D)[:, None, None]
    pair = GaussianPrediction(means, torch.full((2, 1, 1), 0.5, dtype=D))
    wanted = -5.0 + 0.5 * scipy.stats.norm.ppf(2.0 * probability)
    assert_equal(pair.quantile(probability), torch.full((1, 1), wanted, dtype=D), 1e-13)
    if probability > 1e-12:  # whose distance from 1 has digits
        above = 1.0 - probability
        wanted = 5.0 + 0.5 * scipy.stats.norm.isf(2.0 * (1.0 - above))
        assert_equal(pair.quantile(above), torch.full((1, 1), wanted, dtype=D), 1e-13)
