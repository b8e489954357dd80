"""What structured deep GPs draw, against the oracle; likelihoods of outputs that depend on each other.

Six standard errors on means and covariances, Kolmogorov-Smirnov on every output.
"""

import math

import pytest
import torch
from scipy import stats
from torch.distributions import MultivariateNormal, Normal

import gilib
from gilib.likelihoods import CorrelatedGaussian, HeteroscedasticGaussian, PerOutputGaussian
from tests.structured import oracle
from tests.structured.reading import DEEP, FAMILIES, WIDE, network, oracle_of, unknowns, write_root
from tests.support import D, assert_equal, assert_mean, assert_same_mean, normals, seeded

X = normals(2, 2, seed=41)
EVERY = pytest.mark.parametrize("family", FAMILIES)
MANY = 20_000


def assert_same_distribution(values, others):
    """Means and covariances within six standard errors, distribution functions as improbably apart."""
    values, others = values.flatten(1), others.flatten(1)
    assert_same_mean(values, others)
    centred = [each - each.mean(0) for each in (values, others)]
    assert_same_mean(*((each[:, :, None] * each[:, None, :]).flatten(1) for each in centred))
    rare = math.erfc(6.0 / math.sqrt(2))  # the probability of a normal beyond six standard errors
    for a, b in zip(values.mT.numpy(), others.mT.numpy(), strict=True):
        assert stats.ks_2samp(a, b, method="asymp").pvalue >= rare


def brute(net, x, samples=MANY):
    """The last layer at points `[P, 2]` together, `[samples, P, 1]`, from sampled inducing outputs."""
    with torch.no_grad():
        return oracle.sample_by_inducing_outputs(oracle_of(net), x, seeded(2), samples)[-1]


@EVERY
def test_an_estimate_at_a_point(family):
    """With the inducing outputs sampled."""
    net = network(family, marginalise=False)
    with torch.no_grad():
        assert_same_distribution(net.estimate(MANY, 1, generator=seeded(3))(X[:1]), brute(net, X[:1]))


@EVERY
def test_the_bound_by_sampled_inducing_outputs(family):
    """Has the expectation of the one that integrates them out (Lindinger et al., 2020, Fig. 2)."""
    x, y, bounds = normals(4, 2, seed=42), normals(4, 1, seed=43), []
    for marginalise in (True, False):
        net = network(family, marginalise=marginalise)
        with torch.no_grad():
            drawn = net.estimate(10_000, 4, generator=seeded(4 + marginalise))
            bounds.append(gilib.elbo(drawn, gilib.Gaussian(0.3), x, y, num_data=4, reduction="none"))
    assert_same_mean(*bounds)


@EVERY
def test_joint_draws(family):
    net = network(family)
    with torch.no_grad():
        drawn = net.joint_draw(MANY, 2, generator=seeded(5))
        assert_same_distribution(drawn(X), brute(net, X))
        assert_mean(drawn.log_pq, -oracle.kl(oracle_of(net)))


def test_draws_along_a_path():
    """Moments are exact but for about 1/256, the features; the errors of 4000 samples are four times that."""
    net = network("stripes_and_arrow", DEEP, num_features=256)
    with torch.no_grad():
        drawn = net.draw(4000, generator=seeded(6))
        assert_same_distribution(drawn(X), brute(net, X))
        assert_equal(drawn(X)[:, :1], drawn(X[:1]), 1e-9)  # one function
        assert_mean(drawn.log_pq, -oracle.kl(oracle_of(net)))


ONE_LAYER = ((2,), (4,))
POINT = normals(4, 2)[:1]  # an inducing input of its
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
    ours = likelihood.expected_log_prob(net.estimate(SAMPLES, 1, generator=seeded(1)), POINT, y)
    drawn = oracle.sample_point(model, POINT, normals(SAMPLES, 1, sum(shape[0]), seed=2))[-1]
    theirs = likelihood.log_prob(drawn, y)
    if bool((ours == ours[0]).all()):  # in closed form
        assert_mean(theirs, ours[0])
    else:
        assert_same_mean(ours[:, 0], theirs[:, 0])


@torch.no_grad()
def test_the_predicted_joint_density():
    """That of one layer is a Gaussian's."""
    net, model = coupled(ONE_LAYER)
    mean, covariance = oracle.conditional(model, POINT, [], 0)
    assert covariance[0, 0, 1] > 0.6 * covariance[0].diagonal().prod().sqrt()
    exact = MultivariateNormal(mean, covariance + 0.3 * torch.eye(2, dtype=D)).log_prob(Y).exp()
    found, variance = net.estimate(SAMPLES, 1, generator=seeded(3)).moments(POINT)
    prediction = gilib.Gaussian(0.3).predictive(found, None, variance)
    assert_mean(Normal(prediction.means, prediction.component_sd).log_prob(Y).sum(-1).exp(), exact)


def test_outputs_that_are_independent_keep_their_variances():
    drawn = network("mean_field", WIDE).estimate(2, 1, generator=seeded())
    assert all(torch.equal(a, b) for a, b in zip(drawn.moments(POINT), drawn.marginals(POINT), strict=True))
