"""Every posterior against its dense Gaussian: draws over a cubature, log P - log Q, what is integrated out.

Draws are affine in their normals, so that over a cubature their means and covariances are exact.
"""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from gilib.linalg import ScaledIdentity
from gilib.posteriors import (
    BuildContext,
    Conjugate,
    Factorised,
    FreeGaussian,
    FromPrior,
    GlobalInducing,
    LocalInducing,
    MatrixGaussian,
    PropagatedGaussian,
)
from gilib.randomness import Noise
from gilib.regression.joint import JointState
from gilib.sites import DenseWeights, InducingOutputs
from tests.support import PRECISIONS, assert_equal, pseudo_precision, shaken
from tests.support.oracles import condition_jointly, normal, positive_definite
from tests.support.processes import covariance, cubature

pytestmark = pytest.mark.usefixtures("float64")


def kron(columns, rows):
    return torch.kron(columns.contiguous(), rows.contiguous())


def of_factorised(module, features, prior):
    return module.mean.mT.flatten(), module.log_variance.exp().mT.flatten().diag()


def of_matrix(module, features, prior):
    rows, columns = (root.tril() @ root.tril().mT for root in (module.row_root, module.column_root))
    return module.mean.mT.flatten(), kron(columns, rows)


def of_conjugate(module, features, prior):
    size = len(module.mean)
    columns = module.scale_tril @ module.scale_tril.mT / (module.df + module.outputs + 1)
    return module.mean.mT.flatten() / size**0.5, kron(columns, torch.linalg.inv(module.precision)) / size


def of_prior(module, features, prior):
    outputs = module.shape[1]
    return torch.zeros(outputs * prior.size), kron(torch.eye(outputs), torch.linalg.inv(prior.dense()))


def of_inducing(module, features, prior):
    """A regression for every output, by conditioning the joint Gaussian of weights and pseudo-outputs."""
    if module.inducing_inputs is not None:
        features = torch.cat([module.inducing_inputs, torch.ones(module.pseudo.points, 1)], -1)
    noises = torch.linalg.inv(pseudo_precision(module)).expand(module.site.outputs, -1, -1)
    pairs = zip(noises, module.pseudo.outputs.mT, strict=True)
    weights = torch.linalg.inv(prior.dense())
    means, blocks = zip(*(condition_jointly(weights, features, noise, v) for noise, v in pairs), strict=True)
    return torch.cat(means), torch.block_diag(*blocks)


def of_free(module, features, prior):
    """Over inducing outputs u = R w, for features R; whitened ones where there are none."""
    whiten = torch.eye(len(module.mean)) if features is None else torch.linalg.inv(features)
    roots = [whiten @ root.tril() for root in module.root]
    return (whiten @ module.mean).mT.flatten(), torch.block_diag(*(root @ root.mT for root in roots))


DENSE = {
    "factorised": (Factorised(0.2), of_factorised),
    "matrix": (MatrixGaussian(3.0), of_matrix),
    "conjugate": (Conjugate(), of_conjugate),
    "from the prior": (FromPrior(), of_prior),
    **{f"global, {kind}": (GlobalInducing(kind, 0.4), of_inducing) for kind in PRECISIONS},
    **{f"local, {kind}": (LocalInducing(None, kind, 0.4), of_inducing) for kind in PRECISIONS},
    **{
        f"marginalised, {kind}": (LocalInducing(None, kind, 0.4, marginalise=True), of_inducing)
        for kind in PRECISIONS
    },
    "free": (FreeGaussian(initial_scale=0.7), of_free),
    "propagated": (PropagatedGaussian(0.5), of_free),
}
# points, I and O: more rows than weights; so few that the system of the points is solved; the least
SIZES = [(5, 4, 3), (3, 10, 2), (1, 2, 1)]


def problem(name, size, make_prior, generator):
    """Module, features, prior precision, and the dense Gaussians of Q and P over the columns of W."""
    (points, fan_in, outputs), (spec, dense) = size, DENSE[name]
    process = dense is of_free or "marginalised" in name
    site = InducingOutputs(points, outputs) if process else DenseWeights(fan_in, outputs, True)
    module = shaken(spec.build(site, BuildContext(points, generator=generator)), 0.3)
    prior = ScaledIdentity(torch.ones(()), points) if process else make_prior(generator, fan_in)
    if isinstance(spec, Conjugate):
        precision, scale = (positive_definite(generator, n, n) for n in (fan_in, outputs))
        roots = torch.linalg.cholesky(precision), torch.linalg.cholesky(scale)
        centre, white = (normal(generator, fan_in, outputs) for _ in range(2))
        module.move(JointState(centre, precision, *roots, white), torch.ones(outputs), 12.0, None)
    features = normal(generator, points, fan_in)
    if process:  # the factor of a kernel matrix
        features = torch.linalg.cholesky(positive_definite(generator, points, points))
    features = features if module.needs_inducing else None
    mean, spread = dense(module, features, prior)
    p = MultivariateNormal(torch.zeros_like(mean), precision_matrix=kron(torch.eye(outputs), prior.dense()))
    return module, features, prior, MultivariateNormal(mean.detach(), spread.detach()), p


EVERY = pytest.mark.parametrize("name", DENSE)
SIZED = pytest.mark.parametrize("size", SIZES, ids=str)


@EVERY
@SIZED
@torch.no_grad()
def test_draws_and_their_log_ratio(name, size, make_prior, generator):
    module, features, prior, q, p = problem(name, size, make_prior, generator)
    weights, log_pq = module.draw(features, prior, cubature(module.noise_size))
    flat = weights.mT.flatten(1)
    assert_equal(flat.mean(0), q.mean, 1e-9)
    assert_equal(covariance(flat), q.covariance_matrix, 1e-9)
    assert_equal(log_pq, p.log_prob(flat) - q.log_prob(flat), 1e-8)


@EVERY
@SIZED
@torch.no_grad()
def test_what_is_integrated_out_costs_its_divergence(name, size, make_prior, generator):
    module, features, prior, q, p = problem(name, size, make_prior, generator)
    found = []
    if module.estimate_size.points:
        noise = Noise(*(torch.zeros(3, *(1,) * k, n) for k, n in enumerate(module.estimate_size)))
        found.append(module.estimate(features, prior, noise, lambda weights: weights)[1])
    if module.distribution_size == 0:
        mean, blocks, log_pq = module.distribution(features, prior, torch.zeros(3, 0))
        assert_equal(mean.mT.flatten(), q.mean, 1e-9)
        blocks = blocks.expand(size[2], -1, -1)
        assert_equal(torch.block_diag(*blocks), q.covariance_matrix, 1e-9)
        found.append(log_pq)
    for log_pq in found:
        assert_equal(log_pq, -kl_divergence(q, p).expand(3), 1e-8)
