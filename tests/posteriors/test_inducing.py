"""Inducing-point posteriors against brute force, in any order and arithmetic."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.linalg import KroneckerIdentity, ScaledIdentity
from gilib.posteriors import BuildContext, GlobalInducing, LocalInducing
from gilib.sites import DenseWeights
from tests.support import seeded
from tests.support.oracles import columns_log_prob, condition_jointly, draw_weights, normal, positive

pytestmark = pytest.mark.usefixtures("float64")
POINTS, FAN_IN, OUTPUTS = 5, 4, 3
EXACT = {"rtol": 1e-12, "atol": 1e-12}
KINDS = ("shared", "per_output", "full")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def build(spec, generator):
    context = BuildContext(POINTS, generator=generator, dtype=torch.float64, last=True)
    return spec.build(DenseWeights(FAN_IN, OUTPUTS, True), context)


def features_of(module, given):
    """Φ of a posterior without replicas: what it is given, or its own with the column of ones."""
    if module.inducing_inputs is None:
        return given
    return torch.cat([module.inducing_inputs, torch.ones(module.inducing_inputs.shape[0], 1)], -1)


def noise_covariances(module):
    """Λ_o⁻¹ `[O, M, M]` from the parameters, as they are described."""
    precision = (module.pseudo.log_precision_scale * module.pseudo.scaled_log_precision).exp()
    if module.pseudo.kind == "per_output":
        return torch.diag_embed(1 / precision)
    root = torch.diag(precision.sqrt())
    if module.pseudo.kind == "full":
        root = root @ (torch.eye(POINTS) + module.pseudo.scaled_root.tril(-1))
    return torch.linalg.inv(root @ root.mT).expand(OUTPUTS, POINTS, POINTS)


@pytest.mark.parametrize("family", [GlobalInducing, LocalInducing])
def test_posterior_by_brute_force(family, kind, make_prior, perturbed, generator):
    module = perturbed(build(family(precision=kind), generator))
    prior, given = make_prior(generator, FAN_IN), normal(generator, POINTS, FAN_IN)
    features, noise = features_of(module, given), noise_covariances(module)
    posterior = module.condition(given if module.needs_inducing else None, prior)
    covariances = posterior.covariance.expand(OUTPUTS, FAN_IN, FAN_IN)
    for o in range(OUTPUTS):
        mean, covariance = condition_jointly(
            torch.linalg.inv(prior.dense()), features, noise[o], module.pseudo.outputs[:, o]
        )
        torch.testing.assert_close(posterior.mean[:, o], mean, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(covariances[o], covariance, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("family", [GlobalInducing, LocalInducing])
def test_log_ratio_identity(family, kind, make_prior, perturbed, generator):
    module = perturbed(build(family(precision=kind), generator))
    prior, given = make_prior(generator, FAN_IN), normal(generator, POINTS, FAN_IN)
    features, noise, targets = features_of(module, given), noise_covariances(module), module.pseudo.outputs
    weights, log_pq = draw_weights(
        module, given if module.needs_inducing else None, prior, normal(generator, 7, FAN_IN, OUTPUTS)
    )
    evidence = features @ torch.linalg.inv(prior.dense()) @ features.mT + noise
    expected = columns_log_prob(targets, torch.zeros_like(targets), evidence)
    expected = expected - columns_log_prob(targets.expand(7, -1, -1), features @ weights, noise)
    torch.testing.assert_close(log_pq, expected, rtol=0, atol=1e-9)


def test_no_precision_gives_the_prior(kind, make_prior, generator):
    module = build(GlobalInducing(precision=kind, log_precision=-700.0), generator)
    prior, noise = make_prior(generator, FAN_IN), normal(generator, 7, FAN_IN, OUTPUTS)
    weights, log_pq = draw_weights(module, normal(generator, POINTS, FAN_IN), prior, noise)
    torch.testing.assert_close(weights, prior.sqrt_inv_matmul(noise), **EXACT)
    torch.testing.assert_close(log_pq, torch.zeros(7), rtol=0, atol=1e-11)


@given(*(st.integers(1, 5),) * 3, st.sampled_from(KINDS), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_all_shapes_and_the_order_of_inducing_points_does_not_matter(points, fan_in, outputs, kind, seed):
    generator = seeded(seed)
    context = BuildContext(points, generator=generator, dtype=torch.float64)
    module = GlobalInducing(precision=kind).build(DenseWeights(fan_in, outputs, True), context)
    with torch.no_grad():
        module.pseudo.scaled_log_precision += 0.3 * normal(
            generator, *module.pseudo.scaled_log_precision.shape
        )
    features, noise = normal(generator, 3, points, fan_in), normal(generator, 3, fan_in, outputs)
    prior = ScaledIdentity(positive(generator), fan_in)
    weights, log_pq = draw_weights(module, features, prior, noise)
    assert weights.shape == (3, fan_in, outputs) and log_pq.shape == (3,)
    order = torch.randperm(points, generator=generator)
    with torch.no_grad():
        module.pseudo.outputs.copy_(module.pseudo.outputs[order])
        module.pseudo.scaled_log_precision.copy_(module.pseudo.scaled_log_precision[..., order])
    again, again_pq = draw_weights(module, features[:, order], prior, noise)
    torch.testing.assert_close(weights, again, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(log_pq, again_pq, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("log_precision", "weakest", "expected"),
    [(0.0, 1.0, torch.float32), (12.0, 1.0, torch.float64), (0.0, 1e-5, torch.float64)],
)
def test_auto_takes_float64_where_the_condition_number_may_be_large(log_precision, weakest, expected):
    """It reads the weakest precision of the prior."""
    context = BuildContext(num_inducing=12, generator=seeded(0), dtype=torch.float32)
    layer = GlobalInducing(log_precision=log_precision).build(DenseWeights(6, 2, True), context)
    features = normal(seeded(1), 12, 6).float()
    prior = KroneckerIdentity(torch.diag(torch.tensor([weakest, 10.0], dtype=torch.float32)), 3)
    assert layer.condition(features, prior).dtype == expected
    drawn = draw_weights(layer, features, prior, normal(seeded(2), 3, 6, 2).float())
    assert all(value.dtype == torch.float32 for value in drawn)
