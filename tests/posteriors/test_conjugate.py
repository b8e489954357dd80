"""The conjugate posterior: outputs of an estimate, where it starts, and who moves."""

import pytest
import torch

import gilib
from gilib.layers.linear import LinearFunction
from gilib.posteriors import BuildContext, Conjugate
from gilib.randomness import Noise
from gilib.sites import ConvolutionWeights, DenseWeights, InducingOutputs
from tests.posteriors.test_densities import problem
from tests.support import assert_equal
from tests.support.oracles import draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")
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
