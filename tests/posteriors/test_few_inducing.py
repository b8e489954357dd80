"""Few inducing points: the posterior goes through the M × M system, and is the same posterior."""

import math

import pytest
import torch

import gilib
from gilib.linalg import ScaledIdentity
from gilib.posteriors import BuildContext, GlobalInducing
from gilib.regression.dual import DualWeightPosterior
from gilib.sites import DenseWeights
from tests.support import PRECISIONS, PRIORS, log_evidence, normals, seeded, with_ones
from tests.support.oracles import Operations, draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")
POINTS, FAN_IN, OUTPUTS, SAMPLES = 3, 10, 4, 5


def build(spec, generator=None, points=POINTS, dtype=torch.float64):
    context = BuildContext(points, generator=generator, dtype=dtype)
    return spec.build(DenseWeights(FAN_IN, OUTPUTS, True), context)


@pytest.mark.parametrize(("points", "few"), [(1, True), (3, True), (4, False), (10, False), (12, False)])
def test_the_smaller_system_is_solved(points, few, generator):
    module, prior = build(GlobalInducing(), points=points), ScaledIdentity(torch.tensor(1.0), FAN_IN)
    features, noise = normal(generator, SAMPLES, points, FAN_IN), normal(generator, SAMPLES, FAN_IN, OUTPUTS)
    assert isinstance(module.condition(features, prior), DualWeightPosterior) == few
    with Operations() as operations:
        draw_weights(module, features, prior, noise)
    size = points if few else FAN_IN
    assert [shape[-2:] for shape in operations.factorised] == [(size, size)]


@pytest.mark.parametrize("kind", PRECISIONS)
def test_float64_where_float32_would_fail(kind, generator):
    features = 1e4 * normal(generator, POINTS, FAN_IN).float()
    features[1] = features[0] + 1e-3 * features[1]
    noise, prior = normal(generator, 7, FAN_IN, OUTPUTS), ScaledIdentity(torch.tensor(1.0), FAN_IN)
    spec = GlobalInducing(precision=kind, log_precision=0.0)
    exact, automatic = build(spec, generator), build(spec, dtype=torch.float32)
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
