"""Where a Gaussian process must be exact: its evidence, regression by scikit-learn, a dense layer."""

import math
from functools import partial

import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn
from torch.distributions import MultivariateNormal

import gilib
from gilib.draws import JointDraw
from gilib.kernels import DotProduct, Matern
from gilib.processes import NUGGET
from gilib.randomness import Noise
from tests.kernels.cases import textbook
from tests.support import PRECISIONS, D, assert_equal, normals, seeded, shaken
from tests.support.processes import (
    KERNEL,
    NOISE,
    ByCubature,
    covariance,
    cubature,
    layer_of,
    log_ratio,
    one_layer,
    precisions,
    wave,
)

X, Y = wave(8)
LIKELIHOOD = gilib.Gaussian(NOISE)
POSTERIORS = {
    "global": gilib.GlobalInducing,
    "local": partial(gilib.LocalInducing, 8),
    "local, marginalised": partial(gilib.LocalInducing, 8, marginalise=True),
}
KERNELS = {
    "rbf": KERNEL,
    "matern": Matern((0.8, 1.3), variance=1.7, smoothness=1.5),
    "sum": KERNEL + DotProduct(0.4, 0.2),
}
SKLEARN = {
    "rbf": sklearn.ConstantKernel(1.7) * sklearn.RBF((0.8, 1.3)),
    "matern": sklearn.ConstantKernel(1.7) * sklearn.Matern((0.8, 1.3), nu=1.5),
    "sum": sklearn.ConstantKernel(1.7) * sklearn.RBF((0.8, 1.3))
    + sklearn.ConstantKernel(0.4) * sklearn.DotProduct(math.sqrt(0.5)),
}


def exact_net(kind="global", precision="shared", kernel=KERNEL):
    """Inducing inputs are the data, pseudo-outputs the targets, as noisy as they."""
    posterior = POSTERIORS[kind](precision=precision, log_precision=-math.log(NOISE))
    return one_layer(posterior, inducing=X, pseudo=Y, kernel=kernel)


def evidence(kernel):
    """Of all outputs."""
    marginal = MultivariateNormal(
        torch.zeros(8, dtype=D), textbook(kernel, X, X) + NOISE * torch.eye(8, dtype=D)
    )
    return marginal.log_prob(Y.mT).sum()


# every posterior with one kernel, every kernel with one posterior
CASES = pytest.mark.parametrize(
    ("kind", "precision", "name"),
    [(kind, precision, next(iter(KERNELS))) for kind in POSTERIORS for precision in PRECISIONS]
    + [("global", "full", name) for name in list(KERNELS)[1:]],
)


def elbos(drawn, x=X, y=Y):
    return gilib.elbo(drawn, LIKELIHOOD, x, y, num_data=len(x), reduction="none").detach()


@CASES
def test_the_bound_of_every_draw_is_the_log_evidence(kind, precision, name):
    net, truth = exact_net(kind, precision, KERNELS[name]), evidence(KERNELS[name])
    draw, estimate = net.draw(20, generator=seeded(1)), net.estimate(20, 8, generator=seeded(2))
    if kind != "local, marginalised":  # whose draws have the density of a draw, and moments without one
        assert_equal(elbos(draw), truth.expand(20), 1e-10)
    assert_equal(elbos(estimate), truth.expand(20), 1e-10)
    weights = LIKELIHOOD.log_prob(draw(X), Y).sum(-1) + draw.density
    assert_equal(weights.detach(), truth.expand(20), 1e-10)  # along the path itself
    values = draw(X).detach()
    assert float((values[0] - values[1]).abs().max()) > 0.1  # the draws differ, their bounds do not


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", POSTERIORS)
def test_the_bound_of_every_joint_draw_but_for_the_nugget(kind, precision):
    """A variance of 1e-10 is added to the points: their noise moves a bound by (y - f)ᵀ dz/σ², six times."""
    joint = exact_net(kind, precision).joint_draw(20, 8, generator=seeded(3))
    assert isinstance(joint, JointDraw)
    pull = ((Y - joint(X)) / NOISE).detach().square().sum((-2, -1)).sqrt()
    allowed = 6 * math.sqrt(NUGGET * KERNEL.variance) * pull + 1e-7
    assert bool(((elbos(joint) - evidence(KERNEL)).abs() <= allowed).all()) and float(allowed.max()) < 0.01


def test_a_wrong_noise_is_not_exact():
    """The check above has teeth."""
    draw = exact_net().draw(200, generator=seeded(1))
    bounds = gilib.elbo(draw, gilib.Gaussian(2 * NOISE), X, Y, num_data=8, reduction="none")
    assert bounds.std() > 0.1


@CASES
def test_predictions_are_those_of_scikit_learn(kind, precision, name):
    """Means, and standard deviations with the noise; over a cubature, the mixture's moments are exact."""
    points = normals(5, 2, seed=5)
    prediction = gilib.predict(ByCubature(exact_net(kind, precision, KERNELS[name])), LIKELIHOOD, points)
    oracle = GaussianProcessRegressor(SKLEARN[name], alpha=NOISE, optimizer=None).fit(X.numpy(), Y.numpy())
    mean, sd = (torch.from_numpy(value) for value in oracle.predict(points.numpy(), return_std=True))
    assert_equal(prediction.mean, mean, 1e-8)
    assert_equal(prediction.sd.square() - NOISE, sd.square(), 1e-8)
    assert float(sd.min()) > 0.1


def optimal_free(net):
    """Give a free Gaussian at X the moments of exact regression, whitened."""
    layer = layer_of(net)
    root = torch.linalg.cholesky(textbook(KERNEL, X, X))
    precision = torch.eye(8, dtype=D) + root.mT @ root / NOISE
    layer.weights.mean.data.copy_(torch.linalg.solve(precision, root.mT @ Y / NOISE))
    layer.weights.root.data.copy_(torch.linalg.cholesky(torch.linalg.inv(precision)).expand(2, 8, 8))
    return net


def test_the_optimal_free_gaussian_is_exact_regression():
    net = optimal_free(one_layer(gilib.FreeGaussian(8), inducing=X))
    assert_equal(elbos(net.estimate(3, 8, generator=seeded())), evidence(KERNEL).expand(3), 1e-8)
    points = normals(5, 2, seed=5)
    prediction = gilib.predict(net, LIKELIHOOD, points, 1)
    oracle = GaussianProcessRegressor(SKLEARN["rbf"], alpha=NOISE, optimizer=None).fit(X.numpy(), Y.numpy())
    mean, sd = (torch.from_numpy(value) for value in oracle.predict(points.numpy(), return_std=True))
    assert_equal(prediction.mean, mean, 1e-8)
    assert_equal(prediction.sd.square() - NOISE, sd.square(), 1e-8)


def linear_pair(precision):
    """A process with the kernel of a dense layer, and that layer; the same three points of pseudo-data."""
    z, v = normals(3, 2, seed=1), normals(3, 2, seed=2)
    posterior = gilib.GlobalInducing(precision, log_precision=0.5)
    process = one_layer(posterior, inducing=z, pseudo=v, kernel=DotProduct(1 / 3, 1 / 3))
    dense = gilib.Network(z, [gilib.Linear(2, 2, posterior, gilib.NealPrior())], pseudo_outputs=v)
    for net in (process, dense):
        shaken(layer_of(net).weights, 0.3)
    return process, dense, z


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_dense_layer_is_a_process_with_a_linear_kernel(precision):
    """For M ≤ I: inducing outputs have one distribution, log P - log Q one formula, bounds one mean."""
    process, dense, z = linear_pair(precision)
    x, y = wave(6, seed=9)
    bounds, moments = [], []
    for net in (process, dense):
        layer = layer_of(net)
        noise = net.base_noise(2 * layer.weights.noise_size, seeded(1))
        noise[:, : layer.weights.noise_size] = cubature(layer.weights.noise_size)
        draw = net.draw(noise=noise)
        u = draw(z).detach()
        v = layer.weights.pseudo.outputs.detach()
        ratio = sum(
            log_ratio(DotProduct(1 / 3, 1 / 3), z, v[:, o], precisions(layer)[o], u[..., o]) for o in range(2)
        )
        assert_equal(draw.log_pq.detach(), ratio, 1e-8)
        bounds.append(elbos(draw, x, y).mean())
        moments.append((u.mean(0), covariance(u[..., 0]), covariance(u[..., 1])))
    assert_equal(bounds[0], bounds[1], 1e-8)
    for ours, theirs in zip(*moments, strict=True):
        assert_equal(ours, theirs, 1e-9)
    estimate = process.estimate(noise=Noise(cubature(6), normals(12, 6, 2, seed=3)))
    assert_equal(elbos(estimate, x, y).mean(), bounds[1], 1e-8)
