"""The conjugate posterior: draws, estimates and densities against dense Gaussians."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

import gilib
from gilib.layers.linear import LinearFunction
from gilib.posteriors import BuildContext, Conjugate
from gilib.randomness import Noise
from gilib.regression.joint import JointState
from gilib.sites import ConvolutionWeights, DenseWeights, InducingOutputs
from tests.support.oracles import draw_weights, normal, positive_definite

pytestmark = pytest.mark.usefixtures("float64")
I, O, B = 4, 3, 5  # noqa: E741
DF, ACTIVE = 12.0, torch.tensor(True)


def build(spec=Conjugate(), replicas=()):  # noqa: B008
    return spec.build(DenseWeights(I, O, True), BuildContext(replicas=replicas))


def moved(generator, replicas=()):
    """A posterior somewhere, with V and Σ."""
    module = build(replicas=replicas)
    precision, scale = (
        positive_definite(generator, *replicas, I, I),
        positive_definite(generator, *replicas, O, O),
    )
    tril = torch.linalg.cholesky
    centre, white = normal(generator, *replicas, I, O), normal(generator, *replicas, I, O)
    state = JointState(centre, precision, tril(precision), tril(scale), white)
    module.move(state, torch.ones(*replicas, O), DF, ACTIVE.expand(replicas))
    return module, torch.linalg.inv(precision), scale / (DF + O + 1)


def dense(module, rows, columns):
    """The Gaussian over vec W, columns of W one after the other."""
    covariance = torch.kron(columns.contiguous(), rows.contiguous()) / I
    return MultivariateNormal(module.mean.mT.flatten() / I**0.5, covariance)


def prior_distribution(prior):
    return MultivariateNormal(
        torch.zeros(I * O), precision_matrix=torch.kron(torch.eye(O), prior.dense().contiguous())
    )


def test_a_draw_and_its_density(make_prior, generator):
    module, rows, columns = moved(generator)
    prior, noise = make_prior(generator, I), normal(generator, 7, I, O)
    weights, log_pq = draw_weights(module, None, prior, noise)
    root = torch.linalg.inv(module.precision_tril).mT
    expected = (module.mean + root @ noise @ torch.linalg.cholesky(columns).mT) / I**0.5
    torch.testing.assert_close(weights, expected, rtol=1e-10, atol=1e-10)
    flat = weights.mT.flatten(1)
    log_ratio = prior_distribution(prior).log_prob(flat) - dense(module, rows, columns).log_prob(flat)
    torch.testing.assert_close(log_pq, log_ratio, rtol=1e-10, atol=1e-10)


def estimated(module, x, noise, prior):
    function, log_pq = module.estimate(None, prior, noise, lambda weights: LinearFunction(weights, True))
    return function(x), log_pq


def test_an_estimate_has_the_outputs_of_a_draw_at_every_point(make_prior, generator):
    """N(x̃ M, x̃ V x̃ᵀ Σ), exactly: normals that are unit vectors in turn give the covariance."""
    module, rows, columns = moved(generator)
    prior, x = make_prior(generator, I), normal(generator, B, I - 1)
    full = torch.cat([x, torch.ones(B, 1)], 1) / I**0.5
    unit = Noise(torch.zeros(O, 0), torch.eye(O)[:, None, :].expand(O, B, O))
    outputs, log_pq = estimated(module, x, unit, prior)
    deviation = outputs - full @ module.mean
    covariance = torch.einsum("snp,snq->npq", deviation, deviation)
    spread = torch.einsum("ni,ij,nj->n", full, rows, full)
    torch.testing.assert_close(covariance, spread[:, None, None] * columns, rtol=1e-10, atol=1e-10)
    divergence = kl_divergence(dense(module, rows, columns), prior_distribution(prior))
    torch.testing.assert_close(log_pq, -divergence.expand(O), rtol=1e-10, atol=1e-10)


def test_before_training_weights_are_normal(make_prior, generator):
    module = build(Conjugate(initial_sd=1.7))
    noise = normal(generator, 2, I, O)
    weights, _ = draw_weights(module, None, make_prior(generator, I), noise)
    torch.testing.assert_close(weights, 1.7 * noise / I**0.5)
    assert float(module.df) == O + 1 and int(module.steps) == 0


def test_replicas_that_are_not_active_stay(generator):
    module, _, _ = moved(generator, (2,))
    other, _, _ = moved(generator, (2,))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module.move(other.state, 2.0 * other.mean_square, DF + 1, torch.tensor([True, False]))
    for name, value in module.state_dict().items():
        assert torch.equal(value[1], before[name][1])
    assert torch.equal(module.mean[0], other.mean[0]) and module.steps.tolist() == [2, 1]
    assert module.mean_square[:, 0].tolist() == [2.0, 1.0]


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
    module, _, _ = moved(generator)
    kernels.load_state_dict(module.state_dict())
    prior, noise = make_prior(generator, I), normal(generator, 7, I * O)
    weights, log_pq = module.draw(None, prior, noise)
    assert kernels.estimate_size == (I * O, 0)
    drawn, estimate_pq = kernels.estimate(None, prior, Noise(noise, noise[:, None, :0]), lambda own: own)
    assert torch.equal(drawn, weights) and torch.equal(estimate_pq, log_pq)


@pytest.mark.parametrize("posterior", [Conjugate(), gilib.FromPrior()])
def test_a_prior_for_each_replica(posterior, generator):
    """A layer without parameters tells its dtype by what is no integer."""
    prior = gilib.priors.PerReplica((gilib.NealPrior(), gilib.StandardPrior()))
    net = gilib.models.mlp(2, (3,), 1, posterior=posterior, prior=prior, replicas=(2,), dtype=torch.float64)
    assert net.draw(3, generator=generator)(torch.zeros(5, 2)).shape == (3, 2, 5, 1)
