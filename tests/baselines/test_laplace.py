"""The last layer's Laplace approximation, against conjugate regression and Hessians by autograd."""

import math

import pytest
import torch
from torch import nn

import gilib
from gilib.baselines import Laplace, laplace
from gilib.linalg import FactorisationError
from tests.support import (
    D,
    assert_equal,
    assert_mean,
    log_evidence,
    normals,
    ridge,
    seeded,
    small_net,
    with_ones,
)

N, NOISE = 9, 0.4
X, Y = normals(N, 2, seed=1), normals(N, 2, seed=2)
LABELS = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 0])
SETTINGS = {"posterior": gilib.PointEstimate(), "dtype": D}


def last(net):
    return [layer for layer in net.modules() if isinstance(layer, gilib.Linear)][-1]


def place(net, weights):
    module = last(net).weights
    with torch.no_grad():
        module.scaled_weights.copy_(weights * module.scale)


def linear():
    """One layer at its most probable weights, where the posterior is known."""
    net = gilib.models.mlp(2, (), 2, **SETTINGS)
    mean, covariance = ridge(with_ones(X), Y, 3.0, NOISE)
    place(net, mean)
    return net, mean, covariance


def test_one_layer_with_gaussian_noise_has_its_posterior():
    """Mean, precision of every output, and evidence, exactly."""
    net, mean, covariance = linear()
    found = laplace(net, gilib.Gaussian(NOISE), X, Y)
    assert_equal(found.weights, mean, 1e-12)
    blocks = found.precision.unflatten(0, (3, 2)).unflatten(-1, (3, 2))  # [I, O, I, O]
    for o in range(2):
        assert_equal(blocks[:, o, :, o], torch.linalg.inv(covariance), 1e-10)
        assert_equal(blocks[:, o, :, 1 - o], torch.zeros(3, 3, dtype=D))
    assert_equal(found.log_evidence, log_evidence(with_ones(X), Y, 1 / 3, NOISE), 1e-10)


def test_draws_have_the_posterior_moments():
    net, mean, covariance = linear()
    x = normals(4, 2, seed=3)
    values = laplace(net, gilib.Gaussian(NOISE), X, Y).draw(4000, generator=seeded())(x)  # [S, 4, 2]
    assert_mean(values, with_ones(x) @ mean)
    deviations = values - with_ones(x) @ mean
    expected = with_ones(x) @ covariance @ with_ones(x).mT
    for o in range(2):
        assert_mean(deviations[..., o, None] * deviations[..., None, :, o], expected)
    assert_mean(deviations[..., 0, None] * deviations[..., None, :, 1], torch.zeros(4, 4, dtype=D))


def log_joint(net, likelihood, targets, flat):
    """Of the last layer's weights, as one vector."""
    first, end = (layer for layer in net.modules() if isinstance(layer, gilib.Linear))
    hidden = torch.tanh(with_ones(X) @ (first.weights.scaled_weights / first.weights.scale).detach())
    weights = flat.reshape(end.fan_in, end.outputs)
    prior = end.fan_in  # precision of NealPrior
    log_prior = -0.5 * prior * flat.square().sum() + 0.5 * len(flat) * math.log(prior / (2 * math.pi))
    return likelihood.log_prob((with_ones(hidden) @ weights)[None], targets).sum() + log_prior


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize(
    ("likelihood", "targets"), [(gilib.Gaussian(NOISE), Y), (gilib.Categorical(), LABELS)]
)
def test_the_precision_is_the_hessian_of_the_log_joint(likelihood, targets, batch_size):
    net = small_net(gilib.PointEstimate())
    found = laplace(net, likelihood, X, targets, batch_size=batch_size)
    at = found.weights.flatten()

    def objective(flat):
        return log_joint(net, likelihood, targets, flat)

    hessian = torch.autograd.functional.hessian(objective, at)
    assert_equal(found.precision, -hessian, 1e-10)
    volume = 0.5 * (len(at) * math.log(2 * math.pi) - torch.linalg.slogdet(-hessian).logabsdet)
    assert_equal(found.log_evidence, objective(at) + volume, 1e-10)


def test_the_layers_below_stay_as_they_are():
    net = small_net(gilib.PointEstimate())
    found, x = laplace(net, gilib.Categorical(), X, LABELS), normals(5, 2, seed=4)
    tight = Laplace(net, found.weights, 1e16 * found.precision, found.log_joint, found.bias)
    assert_equal(tight.draw(3)(x), net.draw(3)(x), 1e-6)  # standard deviations of 1e-8
    assert found.draw(3).log_pq is None
    with pytest.raises(TypeError, match="have no density Q"):
        gilib.elbo(found.draw(3), gilib.Categorical(), X, LABELS, num_data=N)


def test_replicas_are_as_they_would_be_alone():
    net = small_net(gilib.PointEstimate(), replicas=(2,))
    x, y = normals(2, N, 2, seed=5), normals(2, N, 2, seed=6)
    found = laplace(net, gilib.Gaussian(NOISE), x, y)
    values = found.draw(3, generator=gilib.randomness.ReplicaGenerators([4, 9]))(x)
    for r in range(2):
        alone = small_net(gilib.PointEstimate())
        with torch.no_grad():
            for own, both in zip(alone.parameters(), net.parameters(), strict=True):
                own.copy_(both[r] if both.shape != own.shape else both)
        single = laplace(alone, gilib.Gaussian(NOISE), x[r], y[r])
        assert_equal(found.precision[r], single.precision)
        assert_equal(found.log_evidence[r], single.log_evidence)
        assert_equal(values[:, r], single.draw(3, generator=seeded([4, 9][r]))(x[r]), 1e-10)


def test_what_does_not_fit():
    net, noise = small_net(gilib.PointEstimate()), gilib.Gaussian(NOISE)
    with pytest.raises(TypeError, match="net must be"):
        laplace(nn.Linear(2, 2), noise, X, Y)
    with pytest.raises(TypeError, match="likelihood must be"):
        laplace(net, 0.4, X, Y)
    with pytest.raises(ValueError, match="targets must have shape"):
        laplace(net, noise, X, Y[:3])
    with pytest.raises(ValueError, match="batch_size"):
        laplace(net, noise, X, Y, batch_size=0)
    with pytest.raises(ValueError, match="num_samples"):
        laplace(net, noise, X, Y).draw(0)
    for random in (small_net(gilib.Factorised()), small_net(gilib.PointEstimate(), gilib.ScalePrior())):
        with pytest.raises(ValueError, match="this network draws them at random"):
            laplace(random, noise, X, Y)
    tanh = [gilib.Linear(2, 2, gilib.PointEstimate()), nn.Tanh()]
    residual = [gilib.Residual([gilib.Linear(2, 2, gilib.PointEstimate())])]
    for layers, end in ((tanh, "PointwiseFunction"), (residual, "a residual block or a sum")):
        with pytest.raises(ValueError, match=f"end with a Linear layer with PointEstimate, this one.*{end}"):
            laplace(gilib.Network(None, layers, input_shape=(2,), dtype=D), noise, X, Y)


def test_a_likelihood_that_is_not_concave():
    """Where noise is an output, data too close to the mean curve the wrong way: no Gaussian does."""
    net = gilib.models.mlp(2, (3,), 2, posterior=gilib.PointEstimate(), prior=gilib.NealPrior(1e4), dtype=D)
    likelihood = gilib.likelihoods.HeteroscedasticGaussian([0.1])
    with pytest.raises(FactorisationError, match="Laplace.*is not log-concave in the outputs everywhere"):
        laplace(net, likelihood, X, 1e-3 * Y[:, :1])
