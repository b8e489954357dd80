"""Likelihoods see the joint distribution of outputs of the last layer that depend on each other."""

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

import gilib
from gilib.likelihoods import CorrelatedGaussian, HeteroscedasticGaussian, PerOutputGaussian
from tests.structured import oracle
from tests.structured.reading import WIDE, network, oracle_of, unknowns, write_root
from tests.support import D, assert_mean, assert_same_mean, normals, seeded

ONE_LAYER = ((2,), (4,))
X = normals(4, 2)[:1]  # an inducing input of its
Y = torch.tensor([[0.5, -0.5]], dtype=D)
SAMPLES = 20_000
LIKELIHOODS = {
    "heteroscedastic": (HeteroscedasticGaussian([0.1]), Y[:, :1]),
    "gaussian": (gilib.Gaussian(0.3), Y),
    "per output": (PerOutputGaussian([0.3, 0.1]), Y),
    "correlated": (CorrelatedGaussian(2, 0.3), Y),
}


def coupled(shape):
    """A network whose two outputs depend on each other, more than at random, and its model."""
    net = network("fully_coupled", shape)
    points, root = shape[1][-1], torch.eye(unknowns(net), dtype=D)
    root[-points:, -2 * points : -points] = root[-points:, -points:]
    write_root(net, root)
    return net, oracle_of(net)


@pytest.mark.parametrize("shape", [ONE_LAYER, WIDE], ids=["one layer", "two layers"])
@pytest.mark.parametrize("name", LIKELIHOODS)
@torch.no_grad()
def test_the_expected_log_likelihood(name, shape):
    net, model = coupled(shape)
    likelihood, y = LIKELIHOODS[name]
    ours = likelihood.expected_log_prob(net.estimate(SAMPLES, 1, generator=seeded(1)), X, y)
    drawn = oracle.sample_point(model, X, normals(SAMPLES, 1, sum(shape[0]), seed=2))[-1]
    theirs = likelihood.log_prob(drawn, y)
    if bool((ours == ours[0]).all()):  # in closed form
        assert_mean(theirs, ours[0])
    else:
        assert_same_mean(ours[:, 0], theirs[:, 0])


@torch.no_grad()
def test_the_predicted_joint_density():
    """That of one layer is a Gaussian's."""
    net, model = coupled(ONE_LAYER)
    mean, covariance = oracle.conditional(model, X, [], 0)
    assert covariance[0, 0, 1] > 0.6 * covariance[0].diagonal().prod().sqrt()
    exact = MultivariateNormal(mean, covariance + 0.3 * torch.eye(2, dtype=D)).log_prob(Y).exp()
    found, variance = net.estimate(SAMPLES, 1, generator=seeded(3)).moments(X)
    prediction = gilib.Gaussian(0.3).predictive(found, None, variance)
    assert_mean(Normal(prediction.means, prediction.component_sd).log_prob(Y).sum(-1).exp(), exact)


def test_outputs_that_are_independent_keep_their_variances():
    drawn = network("mean_field", WIDE).estimate(2, 1, generator=seeded())
    assert all(torch.equal(a, b) for a, b in zip(drawn.moments(X), drawn.marginals(X), strict=True))
