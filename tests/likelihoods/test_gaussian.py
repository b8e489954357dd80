"""Gaussian noise with one variance, or one for each output: what is learned, and what a rule may set."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

import gilib
from gilib.likelihoods import CorrelatedGaussian, PerOutputGaussian
from tests.support import D, assert_equal, normals


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
