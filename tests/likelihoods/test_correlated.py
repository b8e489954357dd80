"""Correlated noise: predictions against scipy; BALI sets all of it."""

import pytest
import scipy.stats
import torch

import gilib
from gilib.training import Bali
from tests.support import D, assert_equal, normals, seeded
from tests.support.layerwise import X, Y, fit, model, regressions

COVARIANCE = torch.tensor([[2.0, 0.5], [0.5, 0.6]], dtype=D)


def likelihood(covariance=COVARIANCE):
    own = gilib.likelihoods.CorrelatedGaussian(2, learn=True)
    own.set_noise(covariance)
    return own


def test_it_starts_with_independent_noise():
    outputs, targets = normals(3, 5, 2), normals(5, 2, seed=1)
    start = gilib.likelihoods.CorrelatedGaussian(2, 0.3)
    assert_equal(start.log_prob(outputs, targets), gilib.Gaussian(0.3).log_prob(outputs, targets), 1e-12)


def test_the_covariance_of_residuals_has_the_greatest_likelihood():
    """Its gradient is zero there, and nowhere near."""
    residuals = normals(50, 2) @ torch.tensor([[1.0, 0.7], [0.0, 0.3]], dtype=D)
    for factor in (1.0, 1.1):
        own = likelihood(factor * residuals.mT @ residuals / 50)
        own.log_prob(torch.zeros(1, 50, 2, dtype=D), residuals).sum().backward()
        slope = own.log_root.grad.tril()
        assert (float(slope.abs().max()) < 1e-9) == (factor == 1.0)


@pytest.mark.parametrize("normalised", [False, True])
def test_predictions_are_mixtures(normalised):
    """Joint densities by scipy; single outputs as `GaussianPrediction` has them; stretched as targets are."""
    one = torch.ones(2, dtype=D)
    split = gilib.data.Normalisation(0.0 * one, one, normals(2), torch.tensor([3.0, 0.2], dtype=D))
    outputs, targets = normals(4, 5, 2), normals(5, 2, seed=1)
    found = likelihood().requires_grad_(False).predictive(outputs, split if normalised else None)
    scale = split.y_std if normalised else one
    means = split.invert_y(outputs) if normalised else outputs
    covariance = scale[:, None] * COVARIANCE * scale
    for n in range(5):
        density = [scipy.stats.multivariate_normal(mean, covariance).pdf(targets[n]) for mean in means[:, n]]
        assert float(found.log_prob(targets)[n].exp()) == pytest.approx(sum(density) / 4, rel=1e-10)
    single = gilib.prediction.GaussianPrediction(means, covariance.diagonal().sqrt())
    assert_equal(found.sd, single.sd, 1e-12)
    assert_equal(found.quantile(0.3), single.quantile(0.3), 1e-10)
    factor = torch.tensor([2.0, 0.5], dtype=D)
    wide, moved = found.stretched(factor), found.mean + (targets - found.mean) / factor
    assert_equal(wide.sd, factor * found.sd, 1e-12)
    assert_equal(wide.log_prob(targets), found.log_prob(moved) - factor.log().sum(), 1e-12)


def test_bali_infers_it():
    """Two outputs with correlated noise: better than independent noise."""
    root = torch.tensor([[1.0, 0.0], [0.9, 0.4]], dtype=D)
    y, scores = Y + 0.5 * normals(len(Y), 2, seed=5) @ root.mT, []
    for kind in (gilib.likelihoods.CorrelatedGaussian(2, learn=True), gilib.Gaussian(learn=True)):
        net = model()
        fit(net, kind, X, y, steps=40, rule=Bali())
        scores.append(gilib.predict(net, kind, X, 50, generator=seeded()).log_prob(y).mean())
        if not isinstance(kind, gilib.Gaussian):
            assert_equal(kind.covariance.detach(), regressions(net)[-1].noise_covariance, 1e-10)
    assert scores[0] > scores[1] + 0.1
