"""Likelihoods against scipy and brute force."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import MultivariateNormal, kl_divergence

import gilib
from gilib.config import describe, rebuild
from tests.likelihoods.test_distributions import CASES
from tests.support import D, assert_equal, normals

LABELS = torch.tensor([2, 0, 1, 1, 2])


@pytest.mark.parametrize(("variance", "scale"), [(0.07, 10.0), (3.0, 1.0)])
def test_gaussian_against_scipy(variance, scale):
    outputs, targets = normals(3, 5, 2), normals(5, 2, seed=1)
    expected = scipy.stats.norm(outputs.numpy(), math.sqrt(variance)).logpdf(targets.numpy()).sum(-1)
    actual = gilib.Gaussian(variance, scale=scale).log_prob(outputs, targets)
    assert actual.shape == (3, 5)
    assert_equal(actual, expected, 1e-12)


def test_only_a_learned_noise_gets_a_gradient():
    outputs, targets = normals(3, 5, 2), normals(5, 2, seed=1)
    learned = gilib.Gaussian(0.5, learn=True, scale=2.0)
    learned.log_prob(outputs, targets).sum().backward()
    residuals = (outputs - targets).square().sum() / 0.5
    by_hand = 2.0 * 0.5 * (residuals - outputs.numel())  # d log σ² / d stored = scale
    assert_equal(learned.scaled_log_variance.grad, by_hand, 1e-10)
    assert not gilib.Gaussian(0.5).scaled_log_variance.requires_grad


def test_gaussian_with_a_noise_for_every_replica():
    likelihood = gilib.Gaussian(0.5, learn=True, replicas=(2,))
    with torch.no_grad():
        likelihood.scaled_log_variance[1] = math.log(3.0)
    outputs, targets = normals(3, 2, 5, 1), normals(5, 1, seed=1)
    together = likelihood.log_prob(outputs, targets)
    for r, variance in enumerate((0.5, 3.0)):
        alone = gilib.Gaussian(variance).log_prob(outputs[:, r], targets)
        assert_equal(together[:, r].detach(), alone)


def test_gaussian_takes_the_nearest_noise():
    """In KL(N(f, Σ)‖N(f, σ² Id)): no other variance is nearer; each replica has its own."""
    covariance = torch.stack([torch.tensor([[2.0, 0.5], [0.5, 0.6]], dtype=D), torch.eye(2, dtype=D)])
    likelihood = gilib.Gaussian(0.1, learn=True, scale=10.0, replicas=(2,))
    assert likelihood.infers_noise((2,))
    likelihood.set_noise(covariance)
    variance = likelihood.noise_variance.detach().requires_grad_()
    zero, identity = torch.zeros(2, 2, dtype=D), torch.eye(2, dtype=D)
    isotropic = MultivariateNormal(zero, variance[:, None, None] * identity)
    divergence = kl_divergence(MultivariateNormal(zero, covariance), isotropic)
    assert_equal(torch.autograd.grad(divergence.sum(), variance)[0], torch.zeros(2), 1e-10)
    assert_equal(variance.detach(), [1.3, 1.0], 1e-10)


def test_categorical_against_brute_force():
    outputs = 3 * normals(4, 2, 5, 3)
    actual = gilib.Categorical().log_prob(outputs, LABELS)
    exponentials = np.exp(outputs.numpy())
    chosen = np.take_along_axis(exponentials, np.broadcast_to(LABELS.numpy(), (4, 2, 5))[..., None], -1)[
        ..., 0
    ]
    assert_equal(actual, np.log(chosen / exponentials.sum(-1)))


def test_categorical_probabilities_sum_to_one_and_survive_large_outputs():
    outputs = 1e3 * normals(5, 3)
    totals = sum(gilib.Categorical().log_prob(outputs, torch.full((5,), k)).exp() for k in range(3))
    assert_equal(totals, torch.ones(5))


def test_categorical_labels_by_replica():
    outputs, labels = normals(4, 2, 5, 3), torch.stack([LABELS, LABELS.flip(0)])
    together = gilib.Categorical().log_prob(outputs, labels)
    for r in range(2):
        assert_equal(together[:, r], gilib.Categorical().log_prob(outputs[:, r], labels[r]))


OWN = [gilib.Gaussian(0.07, learn=True, scale=10.0, replicas=(2,)), gilib.Gaussian(0.3), gilib.Categorical()]


@pytest.mark.parametrize("likelihood", [*OWN, *(case[0] for case in CASES.values())])
def test_config_and_state_rebuild_a_likelihood(likelihood):
    copy = rebuild(describe(likelihood), gilib.likelihoods.Likelihood)
    copy.load_state_dict(likelihood.state_dict())
    assert copy.config() == likelihood.config()
    for a, b in zip(likelihood.buffers(), copy.buffers(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(likelihood.parameters(), copy.parameters(), strict=True):
        assert torch.equal(a, b) and a.requires_grad == b.requires_grad and a.dtype == b.dtype


def test_a_given_noise_is_exact_in_both_dtypes():
    likelihood = gilib.Gaussian(0.07, scale=10.0)
    assert_equal(likelihood.scaled_log_variance, math.log(0.07) / 10.0)
    assert likelihood.log_prob(normals(2, 3, 1), normals(3, 1)).dtype == D
    assert likelihood.log_prob(normals(2, 3, 1).float(), normals(3, 1).float()).dtype == torch.float32
    assert_equal(likelihood.noise_variance.double(), 0.07, 1e-14)
