"""Where the approximation should be exact: Bayesian linear regression and the optimal last layer."""

import math

import pytest
import torch

import gilib
from tests.support import (
    PRECISIONS,
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


def exact_net(prior, precision="shared", bias=True):
    """Bayesian linear regression whose inducing points are the data, pseudo-outputs as noisy as they."""
    posterior = gilib.GlobalInducing(precision=precision, log_precision=-math.log(NOISE))
    settings = {"bias": bias, "inducing_points": X, "pseudo_outputs": Y}
    return gilib.models.mlp(2, (), 2, posterior=posterior, prior=prior, **settings)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", FIXED)
def test_every_draws_elbo_and_the_iwbo_are_the_log_evidence(name, precision, bias):
    """In a float32 default, with a noise that must not pass through it."""
    assert torch.get_default_dtype() == torch.float32
    prior, variance = FIXED[name]
    features = with_ones(X) if bias else X
    truth = log_evidence(features, Y, variance(features.shape[-1]), NOISE)
    draw = exact_net(prior, precision, bias).draw(20, generator=seeded(3))
    for likelihood in (LIKELIHOOD, gilib.Gaussian(NOISE, learn=True)):
        bounds = gilib.elbo(draw, likelihood, X, Y, num_data=len(X), reduction="none")
        assert_equal(bounds.detach(), truth.expand(20), 1e-9)
        assert_equal(gilib.iwbo(draw, likelihood, X, Y).detach(), truth, 1e-9)


def test_predictions_are_those_of_ridge_regression():
    net = exact_net(gilib.NealPrior())
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
