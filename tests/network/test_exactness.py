"""Where the approximation should be exact: Bayesian linear regression and the optimal last layer."""

import math

import pytest
import torch

import gilib
from tests.support import (
    PRECISIONS,
    D,
    assert_equal,
    assert_mean,
    log_evidence,
    normals,
    ridge,
    seeded,
    with_ones,
)

NOISE = 0.07
X = normals(9, 2, seed=1)
Y = normals(9, 2, seed=2) + X.square()
LIKELIHOOD = gilib.Gaussian(NOISE)
# name: prior, and the variance of a weight as a function of the fan-in
FIXED = {
    "neal": (gilib.NealPrior(scale=1.7), lambda fan_in: 1.7**2 / fan_in),
    "standard": (gilib.StandardPrior(), lambda fan_in: 1.0),
}


def exact_posterior(precision="shared", **settings):
    """Pseudo-outputs as noisy as the data."""
    return gilib.GlobalInducing(precision=precision, log_precision=-math.log(NOISE), **settings)


def exact_net(posterior, prior, bias=True):
    """Bayesian linear regression whose inducing points are the data."""
    return gilib.models.mlp(
        2, (), 2, posterior=posterior, prior=prior, bias=bias, inducing_points=X, pseudo_outputs=Y
    )


def elbos(net, draw):
    return gilib.elbo(draw, LIKELIHOOD, X, Y, num_data=len(X), reduction="none")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", FIXED)
def test_every_draws_elbo_is_the_log_evidence(name, precision, bias):
    prior, variance = FIXED[name]
    net = exact_net(exact_posterior(precision), prior, bias)
    features = with_ones(X) if bias else X
    truth = log_evidence(features, Y, variance(features.shape[-1]), NOISE)
    bounds = elbos(net, net.draw(20, generator=seeded(3)))
    assert bounds.shape == (20,)
    assert_equal(bounds, truth.expand(20), 1e-9)


def test_iwbo_is_the_log_evidence_too():
    net = exact_net(exact_posterior(), gilib.NealPrior())
    bound = gilib.iwbo(net.draw(5, generator=seeded(3)), LIKELIHOOD, X, Y)
    assert_equal(bound, log_evidence(with_ones(X), Y, 1 / 3, NOISE), 1e-9)


def test_exact_in_a_float32_default_with_an_awkward_noise():
    """The noise must not pass through float32 on its way into a float64 network."""
    assert torch.get_default_dtype() == torch.float32
    net = exact_net(exact_posterior(), gilib.NealPrior())
    assert net.draw(1, generator=seeded())(X).dtype == D
    for learn in (False, True):
        bound = gilib.elbo(
            net.draw(1, generator=seeded()), gilib.Gaussian(NOISE, learn), X, Y, num_data=len(X)
        )
        assert_equal(bound.detach(), log_evidence(with_ones(X), Y, 1 / 3, NOISE), 1e-9)


def test_predictions_are_those_of_ridge_regression():
    net = exact_net(exact_posterior(), gilib.NealPrior())
    mean, covariance = ridge(with_ones(X), Y, 3.0, NOISE)
    points = normals(6, 2, seed=5)
    prediction = gilib.predict(net, LIKELIHOOD, points, num_samples=4000, generator=seeded(4))
    truth = with_ones(points) @ mean
    variance = ((with_ones(points) @ covariance) * with_ones(points)).sum(-1, keepdim=True).expand(6, 2)
    squares = (prediction.means - truth).square()
    assert_mean(prediction.means, truth)
    assert_mean(squares, variance)
    standard_error = squares.std(0) / math.sqrt(4000)
    assert ((prediction.sd.square() - variance - NOISE).abs() < 6 * standard_error).all()
