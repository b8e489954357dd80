"""Predictive mixtures against scipy; components of any kind, samples and members pooled."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

import gilib
from tests.support import D, assert_equal, normals

N, OUTPUTS = 3, 2
MEANS = 2 * normals(4, N, OUTPUTS, seed=1)
NOISE = torch.tensor([0.3, 0.8], dtype=D).expand(1, N, OUTPUTS)
MIXTURE = gilib.prediction.GaussianPrediction(MEANS, NOISE)


def component(n, o):
    """The mixture at one point and output as scipy's normals."""
    return scipy.stats.norm(MEANS[:, n, o].numpy(), float(NOISE[0, n, o]))


@pytest.mark.parametrize(("n", "o"), [(0, 0), (2, 1)])
def test_mean_and_sd_by_numerical_integration(n, o):
    def moment(power, centre=0.0):
        density = component(n, o)
        bounds = float(MEANS.min()) - 10, float(MEANS.max()) + 10
        integrand = lambda y: (y - centre) ** power * density.pdf(y).mean()  # noqa: E731
        return scipy.integrate.quad(integrand, *bounds, epsabs=1e-12, limit=200)[0]

    mean = moment(1)
    assert float(MIXTURE.mean[n, o]) == pytest.approx(mean, abs=1e-8)
    assert float(MIXTURE.sd[n, o]) == pytest.approx(math.sqrt(moment(2, mean)), abs=1e-8)
    assert float(MIXTURE.function_sd[n, o]) == pytest.approx(float(np.std(MEANS[:, n, o].numpy())), abs=1e-12)


def test_log_prob_by_brute_force():
    y = normals(N, OUTPUTS, seed=2)
    densities = (
        scipy.stats.norm(MEANS.numpy(), NOISE.numpy()).pdf(y.numpy()).prod(-1)
    )  # [S, N], joint over outputs
    assert_equal(MIXTURE.log_prob(y), np.log(densities.mean(0)), 1e-10)


def test_a_replica_that_failed_has_no_log_prob_and_spoils_no_other():
    y = normals(N, OUTPUTS, seed=2)
    replicas = torch.stack([MEANS, torch.full_like(MEANS, math.nan)], 1)
    healthy, failed = gilib.prediction.GaussianPrediction(replicas, NOISE).log_prob(y)
    assert_equal(healthy, MIXTURE.log_prob(y))
    assert failed.isnan().all()


@pytest.mark.parametrize("probability", [0.0, 1.5, math.nan])
def test_impossible_quantiles(probability):
    with pytest.raises(ValueError, match="a quantile needs a probability between 0 and 1"):
        MIXTURE.quantile(probability)


@pytest.mark.parametrize("targets", [normals(N), normals(N, 1), normals(N + 1, OUTPUTS), normals(1, OUTPUTS)])
def test_targets_of_the_wrong_count(targets):
    with pytest.raises(ValueError, match=r"targets must have shape \[3, 2\]"):
        MIXTURE.log_prob(targets)


def test_labels_of_the_wrong_count():
    prediction = gilib.prediction.CategoricalPrediction(MEANS.log_softmax(-1))
    for labels in (torch.zeros(4, dtype=torch.long), torch.zeros(3, 1, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"class labels must have shape \[3\]"):
            prediction.log_prob(labels)


SPREAD = normals(4, 2, N, OUTPUTS, seed=3)
SD = 0.1 + normals(4, 2, N, OUTPUTS, seed=4).abs()


@pytest.mark.parametrize(
    "shape", [(4, 2, N, OUTPUTS), (1, 2, 1, 1), (4, 1, 1, OUTPUTS), (N, 1), (), (OUTPUTS,)]
)
def test_components_of_their_own_width(shape):
    """A standard deviation for every sample, replica, point and output, or for some of these."""
    sd = SD.flatten()[: math.prod(shape)].reshape(shape)
    mixture, y = gilib.prediction.GaussianPrediction(SPREAD, sd), normals(2, N, OUTPUTS, seed=5)
    full, means = sd.expand_as(SPREAD).numpy(), SPREAD.numpy()
    density = scipy.stats.norm(means, full).pdf(y.numpy())
    assert_equal(mixture.log_prob(y), np.log(density.prod(-1).mean(0)), 1e-10)
    assert_equal(mixture.sd, np.sqrt((full**2 + means**2).mean(0) - means.mean(0) ** 2), 1e-10)
    below = scipy.stats.norm(means, full).cdf(mixture.quantile(0.3).numpy()).mean(0)
    assert_equal(torch.tensor(below), torch.full((2, N, OUTPUTS), 0.3, dtype=D), 1e-10)


@pytest.mark.parametrize("shape", [(3, 2, N, OUTPUTS), (2, OUTPUTS), (1, 1, 1, 1, 1)])
def test_components_that_do_not_fit(shape):
    with pytest.raises(ValueError, match=r"component_sd must be broadcastable to means \[4, 2, 3, 2\], got"):
        gilib.prediction.GaussianPrediction(SPREAD, torch.ones(shape, dtype=D))


def test_members_are_pooled_with_samples():
    """Four samples of two members are eight components; members come fastest."""
    y, width = normals(N, OUTPUTS, seed=5), torch.tensor([0.3, 0.8], dtype=D)[:, None, None]
    pooled = gilib.prediction.GaussianPrediction(SPREAD, width.expand(1, 2, 1, OUTPUTS)).pooled(1)
    by_hand = gilib.prediction.GaussianPrediction(SPREAD.flatten(0, 1), width.repeat(4, 1, 1))
    assert torch.equal(pooled.means, by_hand.means) and pooled.mean.shape == (N, OUTPUTS)
    assert_equal(pooled.log_prob(y), by_hand.log_prob(y))
    assert_equal(pooled.sd, by_hand.sd)
    classes = gilib.prediction.CategoricalPrediction(SPREAD.log_softmax(-1))
    assert_equal(classes.pooled(1).mean, SPREAD.softmax(-1).mean((0, 1)))
    assert torch.equal(classes.pooled(0).mean, classes.mean)
