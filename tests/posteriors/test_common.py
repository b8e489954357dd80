"""What holds for every posterior: replicas, initial values, what a draw costs; few inducing points."""

import math

import pytest
import torch
from torch import nn

import gilib
from gilib.linalg import KroneckerIdentity, ScaledIdentity
from gilib.posteriors import BuildContext, Factorised, GlobalInducing, LocalInducing, MatrixGaussian
from gilib.priors import NealPrior, ScalePrior, SpatialIWPrior
from gilib.regression.dual import DualWeightPosterior
from gilib.sites import DenseWeights
from tests.support import PRECISIONS, PRIORS, assert_equal, log_evidence, normals, seeded, shaken, with_ones
from tests.support.oracles import Operations, draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")
POINTS, FAN_IN, OUTPUTS, SAMPLES = 5, 4, 3, 7
EVERY = pytest.mark.parametrize(
    "spec",
    [
        *(Factorised(), MatrixGaussian(), gilib.FromPrior()),
        *(family(precision=kind) for family in (GlobalInducing, LocalInducing) for kind in PRECISIONS),
    ],
    ids=lambda spec: f"{spec.short_name}-{getattr(spec, 'precision', '')}",
)


def build(spec, generator=None, replicas=()):
    context = BuildContext(POINTS, replicas, generator=generator)
    return spec.build(DenseWeights(FAN_IN, OUTPUTS, True), context)


@EVERY
@pytest.mark.parametrize("first_layer", [True, False])
def test_replicas_are_separate_modules(spec, first_layer, make_prior, generator):
    together = shaken(build(spec, generator, (3,)), 0.4)
    features = normal(generator, *(() if first_layer else (SAMPLES,)), 3, POINTS, FAN_IN)
    noise = normal(generator, SAMPLES, 3, FAN_IN, OUTPUTS)
    prior = make_prior(generator, FAN_IN, (3,))
    weights, log_pq = draw_weights(together, features, prior, noise)
    assert weights.shape == (SAMPLES, 3, FAN_IN, OUTPUTS) and log_pq.shape == (SAMPLES, 3)
    for r in range(3):
        alone = build(spec, generator)
        alone.load_state_dict({name: value[r] for name, value in together.state_dict().items()})
        own = (
            ScaledIdentity(prior.scale[r], FAN_IN)
            if isinstance(prior, ScaledIdentity)
            else KroneckerIdentity(prior.block[r], 2)
        )
        expected, expected_pq = draw_weights(alone, features[..., r, :, :], own, noise[:, r])
        assert_equal(weights[:, r].detach(), expected.detach())
        assert_equal(log_pq[:, r].detach(), expected_pq.detach())
        if isinstance(spec, Factorised):  # whose estimates integrate weights out
            assert_equal(together.kl(prior)[r].detach(), alone.kl(own).detach())


@EVERY
def test_initial_values_come_from_the_generator(spec):
    global_state = torch.get_rng_state()
    one, other = (build(spec, torch.Generator().manual_seed(5)).state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), global_state)
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[key]) for key, value in one.items())


GLOBAL, LOCAL = GlobalInducing(), LocalInducing()


@pytest.mark.parametrize(
    ("posteriors", "prior", "matrices"),
    [  # the first layer's precision has no sample axis, local ones have none at all
        ([GLOBAL] * 3, NealPrior(), (1, SAMPLES, SAMPLES)),
        ([GlobalInducing("per_output")] * 3, NealPrior(), (6, 5 * SAMPLES, 3 * SAMPLES)),
        ([GlobalInducing("full")] * 3, NealPrior(), (1, SAMPLES, SAMPLES)),
        ([LOCAL] * 3, NealPrior(), (1, 1, 1)),
        ([Factorised()] * 3, NealPrior(), (0, 0, 0)),
        ([gilib.FromPrior(), gilib.FromPrior(), GLOBAL], NealPrior(), (0, 0, SAMPLES)),
        ([GLOBAL] * 3, ScalePrior(), (SAMPLES, SAMPLES, SAMPLES)),
        ([GLOBAL] * 3, SpatialIWPrior(), (SAMPLES, SAMPLES, SAMPLES)),
    ],
)
def test_one_factorisation_per_draw_and_layer(posteriors, prior, matrices):
    """Of a fan-in squared; none in the gradient, and nothing that costs more."""
    widths, layers = (2, 6, 5, 3), [nn.ReLU() for _ in range(5)]
    for k, posterior in enumerate(posteriors):
        layers[2 * k] = gilib.Linear(widths[k], widths[k + 1], posterior, prior)
    net = gilib.Network(torch.randn(POINTS, 2), layers)
    with Operations() as operations:
        net.draw(SAMPLES).log_pq.sum().backward()
    found = [shape for shape in operations.factorised if shape[-1] > 1]
    assert found == [(count, n, n) for count, n in zip(matrices, (3, 7, 6), strict=True) if count]
    banned = [key for key in operations.count if "eig" in key or "svd" in key or "inv" in key or "lu_" in key]
    assert banned == []


FEW, WIDTH, COLUMNS, DRAWS = 3, 10, 4, 5


def build_few(spec, generator=None, points=FEW, dtype=torch.float64):
    context = BuildContext(points, generator=generator, dtype=dtype)
    return spec.build(DenseWeights(WIDTH, COLUMNS, True), context)


@pytest.mark.parametrize(("points", "few"), [(1, True), (3, True), (4, False), (10, False), (12, False)])
def test_the_smaller_system_is_solved(points, few, generator):
    module, prior = build_few(GlobalInducing(), points=points), ScaledIdentity(torch.tensor(1.0), WIDTH)
    features, noise = normal(generator, DRAWS, points, WIDTH), normal(generator, DRAWS, WIDTH, COLUMNS)
    assert isinstance(module.condition(features, prior), DualWeightPosterior) == few
    with Operations() as operations:
        draw_weights(module, features, prior, noise)
    size = points if few else WIDTH
    assert [shape[-2:] for shape in operations.factorised] == [(size, size)]


@pytest.mark.parametrize("kind", PRECISIONS)
def test_float64_where_float32_would_fail(kind, generator):
    features = 1e4 * normal(generator, FEW, WIDTH).float()
    features[1] = features[0] + 1e-3 * features[1]
    noise, prior = normal(generator, 7, WIDTH, COLUMNS), ScaledIdentity(torch.tensor(1.0), WIDTH)
    spec = GlobalInducing(precision=kind, log_precision=0.0)
    exact, automatic = build_few(spec, generator), build_few(spec, dtype=torch.float32)
    automatic.load_state_dict(exact.state_dict())
    exact.load_state_dict(automatic.state_dict())  # the values that float32 can hold
    assert automatic.condition(features, prior).dtype == torch.float64
    assert automatic.condition(1e-4 * features, prior.to(torch.float32)).dtype == torch.float32
    weights, log_pq = draw_weights(automatic, features, prior.to(torch.float32), noise.float())
    expected, expected_pq = draw_weights(exact, features.double(), prior, noise.float().double())
    assert weights.dtype == log_pq.dtype == torch.float32
    torch.testing.assert_close(weights.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(log_pq.double(), expected_pq, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PRIORS)
def test_the_last_layer_is_optimal_through_the_smaller_system(name):
    """Given the lower layers and the scale, every draw's bound is the log evidence of their features."""
    x, y, noise_variance = normals(6, 2, seed=1), normals(6, 2, seed=2), 0.07
    posterior = gilib.FromPrior(), gilib.GlobalInducing(log_precision=-math.log(noise_variance))
    points = {"inducing_points": x, "pseudo_outputs": y}
    net = gilib.models.mlp(2, (20,), 2, posterior=posterior, prior=PRIORS[name], **points)
    noise = net.base_noise(7, seeded(3))
    draw = net.draw(noise=noise)
    bounds = gilib.elbo(draw, gilib.Gaussian(noise_variance), x, y, num_data=6, reduction="none")
    first, _, last = net.layers
    lower, upper = noise.split([first.noise_size, last.noise_size], -1)
    _, price = first.hyperparameters.draw(lower[:, : first.hyperparameters.noise_size])
    precision, last_price = last.hyperparameters.draw(upper[:, : last.hyperparameters.noise_size])
    variance = (1 / precision.diagonal()[..., 0]).expand(7)
    phi = with_ones(gilib.record(draw.function, x).outputs[-2])
    truth = torch.stack([log_evidence(phi[s], y, variance[s], noise_variance) for s in range(7)])
    torch.testing.assert_close(bounds, truth + price + last_price, rtol=0, atol=1e-8)
    assert truth.std() > 0.1
