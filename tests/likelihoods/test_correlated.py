"""Correlated noise against torch's and scipy's multivariate normals; BALI sets all of it."""

import pytest
import scipy.stats
import torch
from torch.distributions import MultivariateNormal

import gilib
from gilib.training import Bali
from tests.support import D, assert_equal, normals, seeded
from tests.support.layerwise import X, Y, fit, model, regressions

COVARIANCE = torch.tensor([[2.0, 0.5], [0.5, 0.6]], dtype=D)


def likelihood(covariance=COVARIANCE, **settings):
    own = gilib.likelihoods.CorrelatedGaussian(2, learn=True, **settings)
    own.set_noise(covariance)
    return own


def test_densities():
    outputs, targets = normals(3, 5, 2), normals(5, 2, seed=1)
    expected = MultivariateNormal(outputs, COVARIANCE).log_prob(targets)
    assert_equal(likelihood().log_prob(outputs, targets).detach(), expected, 1e-12)
    start = gilib.likelihoods.CorrelatedGaussian(2, 0.3)
    assert_equal(start.log_prob(outputs, targets), gilib.Gaussian(0.3).log_prob(outputs, targets), 1e-12)
    assert not start.log_root.requires_grad


def test_a_noise_for_every_replica():
    covariance = torch.stack([COVARIANCE, torch.eye(2, dtype=D)])
    together, outputs, targets = (
        likelihood(covariance, replicas=(2,)),
        normals(3, 2, 5, 2),
        normals(5, 2, seed=1),
    )
    for r in range(2):
        alone = likelihood(covariance[r])
        assert_equal(together.log_prob(outputs, targets)[:, r], alone.log_prob(outputs[:, r], targets), 1e-12)
        assert_equal(
            together.predictive(outputs).log_prob(targets)[r],
            alone.predictive(outputs[:, r]).log_prob(targets),
            1e-12,
        )


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
    """Joint densities by scipy; single outputs as `GaussianPrediction` has them."""
    split = gilib.data.Normalisation(
        torch.zeros(2, dtype=D), torch.ones(2, dtype=D), normals(2), torch.tensor([3.0, 0.2], dtype=D)
    )
    outputs, targets = normals(4, 5, 2), normals(5, 2, seed=1)
    own = likelihood().requires_grad_(False)
    found = own.predictive(outputs, split if normalised else None)
    scale = split.y_std if normalised else torch.ones(2, dtype=D)
    means = split.invert_y(outputs) if normalised else outputs
    covariance = scale[:, None] * COVARIANCE * scale
    for n in range(5):
        density = [scipy.stats.multivariate_normal(mean, covariance).pdf(targets[n]) for mean in means[:, n]]
        assert float(found.log_prob(targets)[n].exp()) == pytest.approx(sum(density) / 4, rel=1e-10)
    single = gilib.prediction.GaussianPrediction(means, covariance.diagonal().sqrt())
    assert_equal(found.sd, single.sd, 1e-12)
    assert_equal(found.quantile(0.3), single.quantile(0.3), 1e-10)


def test_a_stretched_prediction_is_that_of_stretched_targets():
    means, root = normals(3, 4, 2, seed=1), torch.tensor([[0.5, 0.0], [0.3, 0.4]], dtype=D)[None]
    plain = gilib.prediction.CorrelatedPrediction(means, root.square().sum(-1).sqrt()[:, None], root)
    factor = torch.tensor([2.0, 0.5], dtype=D)
    targets, centre = normals(4, 2, seed=2), plain.mean
    found = plain.stretched(factor)
    assert_equal(found.sd, factor * plain.sd, 1e-12)
    moved = centre + (targets - centre) / factor
    assert_equal(found.log_prob(targets), plain.log_prob(moved) - factor.log().sum(), 1e-12)


def test_bali_infers_it(tmp_path):
    """Two outputs with correlated noise; saved and loaded with the model; better than independent noise."""
    root = torch.tensor([[1.0, 0.0], [0.9, 0.4]], dtype=D)
    y, scores = Y + 0.5 * normals(len(Y), 2, seed=5) @ root.mT, {}
    for kind in (gilib.likelihoods.CorrelatedGaussian(2, learn=True), gilib.Gaussian(learn=True)):
        net = model()
        fit(net, kind, X, y, steps=60, rule=Bali())
        scores[type(kind)] = gilib.predict(net, kind, X, 50, generator=seeded()).log_prob(y).mean()
        if isinstance(kind, gilib.likelihoods.CorrelatedGaussian):
            assert_equal(kind.covariance.detach(), regressions(net)[-1].noise_covariance, 1e-10)
            gilib.save(tmp_path / "model", net, kind)
            assert torch.equal(gilib.load(tmp_path / "model")[1].log_root, kind.log_root)
    assert scores[gilib.likelihoods.CorrelatedGaussian] > scores[gilib.Gaussian] + 0.1
