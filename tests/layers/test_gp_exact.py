"""Where a Gaussian process must be exact: its evidence, and regression by scikit-learn."""

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
from tests.kernels.cases import textbook
from tests.support import PRECISIONS, D, assert_equal, normals, seeded
from tests.support.processes import KERNEL, NOISE, ByCubature, one_layer, wave

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
