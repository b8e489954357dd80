"""Every posterior against its dense Gaussian: draws over a cubature, log P - log Q, what is integrated out.

Draws are affine in their normals, so that over a cubature their means and covariances are exact.
"""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

import gilib
from gilib.layers.linear import LinearFunction
from gilib.linalg import ScaledIdentity
from gilib.posteriors import BuildContext, Conjugate, MatrixGaussian, PropagatedGaussian
from gilib.randomness import Noise
from gilib.regression.joint import JointState
from gilib.sites import ConvolutionWeights, DenseWeights, InducingOutputs
from tests.support import PRECISIONS, assert_equal, pseudo_precision, shaken
from tests.support.oracles import condition_jointly, draw_weights, normal, positive_definite
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
    "factorised": (gilib.Factorised(0.2), of_factorised),
    "matrix": (MatrixGaussian(3.0), of_matrix),
    "conjugate": (Conjugate(), of_conjugate),
    "from the prior": (gilib.FromPrior(), of_prior),
    **{f"global, {kind}": (gilib.GlobalInducing(kind, 0.4), of_inducing) for kind in PRECISIONS},
    **{f"local, {kind}": (gilib.LocalInducing(None, kind, 0.4), of_inducing) for kind in PRECISIONS},
    **{
        f"marginalised, {kind}": (gilib.LocalInducing(None, kind, 0.4, marginalise=True), of_inducing)
        for kind in PRECISIONS
    },
    "free": (gilib.FreeGaussian(initial_scale=0.7), of_free),
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


B, SIZE = 5, (1, 4, 3)
_, I, O = SIZE  # noqa: E741


def build(spec=Conjugate(), replicas=()):  # noqa: B008
    return spec.build(DenseWeights(I, O, True), BuildContext(replicas=replicas))


def test_an_estimate_has_the_outputs_of_a_draw_at_every_point(make_prior, generator):
    """N(x̃ M, x̃ V x̃ᵀ Σ), exactly: normals that are unit vectors in turn give the covariance."""
    module, _, prior, q, _ = problem("conjugate", SIZE, make_prior, generator)
    x = normal(generator, B, I - 1)
    unit = Noise(torch.zeros(O, 0), torch.eye(O)[:, None, :].expand(O, B, O))
    outputs = module.estimate(None, prior, unit, lambda weights: LinearFunction(weights, True))[0](x)
    full = torch.cat([x, torch.ones(B, 1)], 1)
    at = torch.block_diag(*[full] * O)  # of vec W, columns one after the other
    deviation = outputs - (at @ q.mean).unflatten(0, (O, B)).mT
    covariance = (at @ q.covariance_matrix @ at.mT).unflatten(0, (O, B)).unflatten(2, (O, B))
    found = torch.einsum("snp,snq->npq", deviation, deviation)
    assert_equal(found, torch.einsum("pnqn->npq", covariance), 1e-10)


def test_before_training_weights_are_normal(make_prior, generator):
    module = build(Conjugate(initial_sd=1.7))
    noise = normal(generator, 2, I, O)
    weights, _ = draw_weights(module, None, make_prior(generator, I), noise)
    torch.testing.assert_close(weights, 1.7 * noise / I**0.5)
    assert float(module.df) == O + 1 and int(module.steps) == 0


def test_replicas_that_are_not_active_stay(make_prior, generator):
    module, other = build(replicas=(2,)), problem("conjugate", SIZE, make_prior, generator)[0]
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = other.state._replace(**{k: v.expand(2, *v.shape) for k, v in other.state._asdict().items()})
    module.move(state, torch.full((2, O), 2.0), 12.0, torch.tensor([True, False]))
    for name, value in module.state_dict().items():
        assert torch.equal(value[1], before[name][1])
    assert torch.equal(module.mean[0], other.mean) and module.steps.tolist() == [1, 0]
    assert module.mean_square[:, 0].tolist() == [2.0, 0.0] and module.df.tolist() == [12.0, O + 1]


def test_too_few_degrees_of_freedom_and_sites_without_statistics():
    with pytest.raises(ValueError, match=r"df must exceed O - 1 = 2 at a layer with 3 outputs, got 2"):
        build(Conjugate(df=2.0))
    assert float(build(Conjugate(df=2.1)).df) == pytest.approx(2.1)
    with pytest.raises(ValueError, match="no statistics for InducingOutputs: give this layer"):
        Conjugate().build(InducingOutputs(3, 2), BuildContext())


def test_the_estimate_of_a_convolution_is_its_draw(make_prior, generator):
    """Of kernels with the same state as a dense layer's weights, which are drawn alike."""
    windows = gilib.convolution.Windows.of((2, 2), padding=0)
    kernels = Conjugate().build(ConvolutionWeights(1, O, windows=windows, image_size=(4, 4)), BuildContext())
    module, _, prior, *_ = problem("conjugate", SIZE, make_prior, generator)
    kernels.load_state_dict(module.state_dict())
    noise = normal(generator, 7, I * O)
    assert kernels.estimate_size == (I * O, 0)
    found = kernels.estimate(None, prior, Noise(noise, noise[:, None, :0]), lambda own: own)
    assert all(map(torch.equal, found, module.draw(None, prior, noise)))


@pytest.mark.parametrize("posterior", [Conjugate(), gilib.FromPrior()])
def test_a_prior_for_each_replica(posterior, generator):
    """A layer without parameters tells its dtype by what is no integer."""
    prior = gilib.priors.PerReplica((gilib.NealPrior(), gilib.StandardPrior()))
    net = gilib.models.mlp(2, (3,), 1, posterior=posterior, prior=prior, replicas=(2,), dtype=torch.float64)
    assert net.draw(3, generator=generator)(torch.zeros(5, 2)).shape == (3, 2, 5, 1)
