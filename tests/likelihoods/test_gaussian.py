"""Gaussian noise of every kind: what is learned, what a rule may set, and what is predicted."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

import gilib
from gilib.likelihoods import CorrelatedGaussian, HeteroscedasticGaussian, PerOutputGaussian
from gilib.training import Bali
from tests.support import D, assert_equal, normals, seeded
from tests.support.layerwise import X, Y, fit, model, regressions


def test_the_stored_parameter_is_scaled_and_exact_in_both_dtypes():
    outputs, targets = normals(3, 5, 2), normals(5, 2, seed=1)
    learned = gilib.Gaussian(0.5, learn=True, scale=2.0)
    learned.log_prob(outputs, targets).sum().backward()
    residuals = (outputs - targets).square().sum() / 0.5
    by_hand = 2.0 * 0.5 * (residuals - outputs.numel())  # d log σ² / d stored = scale
    assert_equal(learned.scaled_log_variance.grad, by_hand, 1e-10)
    given = gilib.Gaussian(0.07, scale=10.0)
    assert_equal(given.scaled_log_variance, math.log(0.07) / 10.0)
    assert_equal(given.noise_variance, 0.07, 1e-14)
    for fixed in (given, PerOutputGaussian([0.3]), CorrelatedGaussian(2)):
        assert not any(parameter.requires_grad for parameter in fixed.parameters())


def test_it_takes_the_nearest_noise():
    """In KL(N(f, Σ)‖N(f, σ² Id)): no other variance is nearer; each replica has its own."""
    covariance = torch.stack([torch.tensor([[2.0, 0.5], [0.5, 0.6]], dtype=D), torch.eye(2, dtype=D)])
    likelihood = gilib.Gaussian(0.1, learn=True, scale=10.0, replicas=(2,))
    assert likelihood.infers_noise((2,)) and not gilib.Categorical().infers_noise(())
    likelihood.set_noise(covariance)
    variance = likelihood.noise_variance.detach().requires_grad_()
    zero, identity = torch.zeros(2, 2, dtype=D), torch.eye(2, dtype=D)
    isotropic = MultivariateNormal(zero, variance[:, None, None] * identity)
    divergence = kl_divergence(MultivariateNormal(zero, covariance), isotropic)
    assert_equal(torch.autograd.grad(divergence.sum(), variance)[0], torch.zeros(2), 1e-10)
    assert_equal(variance.detach(), [1.3, 1.0], 1e-10)


@pytest.mark.parametrize("likelihood", [gilib.Gaussian(0.3), PerOutputGaussian([0.3, 2.0])])
def test_variances_of_outputs_are_added(likelihood):
    outputs, variance = normals(4, 6, 2), normals(4, 6, 2, seed=1).square()
    wide = likelihood.predictive(outputs, variance=variance)
    assert_equal(wide.component_sd.square(), variance + likelihood.noise_variance.detach())


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
    root = torch.tensor([[1.0, 0.0], [0.9, 0.4]], dtype=D)
    y, scores = Y + 0.5 * normals(len(Y), 2, seed=5) @ root.mT, []
    for kind in (gilib.likelihoods.CorrelatedGaussian(2, learn=True), gilib.Gaussian(learn=True)):
        net = model()
        fit(net, kind, X, y, steps=40, rule=Bali())
        scores.append(gilib.predict(net, kind, X, 50, generator=seeded()).log_prob(y).mean())
        if not isinstance(kind, gilib.Gaussian):
            assert_equal(kind.covariance.detach(), regressions(net)[-1].noise_covariance, 1e-10)
    assert scores[0] > scores[1] + 0.1


F = normals(4, 6, 4, seed=1)

NODES, WEIGHTS = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(60))
LIKELIHOOD = HeteroscedasticGaussian([0.3, 2.0])


def test_the_predicted_density_by_quadrature():
    """Twenty components stand for log-normal noise: to a hundredth of a nat where targets lie."""
    mean, variance = torch.zeros(1, 41, 2, dtype=D), torch.full((1, 41, 2), 0.25, dtype=D)
    y = torch.linspace(-2, 2, 41, dtype=D)[:, None]
    likelihood = HeteroscedasticGaussian([0.4])
    found = likelihood.predictive(mean, None, variance)
    sd = (0.25 + 0.4 * (0.5 * NODES).exp()).sqrt()
    density = (WEIGHTS / math.sqrt(2 * math.pi) * Normal(0.0, sd).log_prob(y).exp()).sum(-1)
    assert found.means.shape == (20, 41, 1)
    assert (found.log_prob(y) - density.log()).abs().max() < 0.01
    wide = 0.25 + 0.4 * math.exp(0.125)
    assert_equal(found.sd.square().mean(), torch.tensor(wide, dtype=D), 2e-3)


@pytest.mark.parametrize("variance", [None, F.square()])
def test_predictions_in_original_units(variance):
    normalisation = gilib.data.Normalisation.fit(normals(9, 2), 5.0 * normals(9, 2, seed=4))
    plain, scaled = (LIKELIHOOD.predictive(F, units, variance) for units in (None, normalisation))
    assert_equal(scaled.sd, plain.sd * normalisation.y_std)
    assert_equal(scaled.mean, normalisation.invert_y(plain.mean))


def test_a_network_learns_it():
    """Noise ten times as large on the right: outputs of an ordinary network say so."""
    x = torch.linspace(-1, 1, 200, dtype=D)[:, None]
    y = x + torch.where(x > 0, 0.3, 0.03) * normals(200, 1)
    given = {"posterior": gilib.Factorised(), "prior": gilib.NealPrior(), "generator": seeded(), "dtype": D}
    net, likelihood = gilib.models.mlp(1, (10,), 2, **given), HeteroscedasticGaussian([0.05])
    gilib.fit(net, likelihood, x, y, steps=300, rule=gilib.Adam(0.05), progress=False)
    noise = likelihood.target_moments(net.draw(50, generator=seeded())(x)).variance.mean(0).sqrt()
    assert noise[x > 0.3].mean() / noise[x < -0.3].mean() > 4
