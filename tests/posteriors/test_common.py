"""What holds for every posterior: replicas, gradients, and what a draw costs."""

import pytest
import torch
from torch import nn

import gilib
from gilib.linalg import KroneckerIdentity, ScaledIdentity
from gilib.posteriors import (
    BuildContext,
    Factorised,
    FromPrior,
    GlobalInducing,
    LocalInducing,
    MatrixGaussian,
)
from gilib.priors import NealPrior, ScalePrior, SpatialIWPrior
from gilib.sites import DenseWeights
from tests.support.oracles import Operations, assert_gradients, draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")
POINTS, FAN_IN, OUTPUTS, SAMPLES = 5, 4, 3, 7
KINDS = ("shared", "per_output", "full")
LEARNED = [
    Factorised(),
    MatrixGaussian(),
    *(family(precision=kind) for family in (GlobalInducing, LocalInducing) for kind in KINDS),
]
ALL = [*LEARNED, FromPrior()]


def name(spec):
    return f"{spec.short_name}-{getattr(spec, 'precision', '')}"


EVERY = pytest.mark.parametrize("spec", ALL, ids=name)


def build(spec, generator=None, replicas=(), **more):
    context = BuildContext(POINTS, replicas, generator=generator, **{"dtype": torch.float64, **more})
    return spec.build(DenseWeights(FAN_IN, OUTPUTS, True), context)


@EVERY
@pytest.mark.parametrize("first_layer", [True, False])
def test_replicas_are_separate_modules(spec, first_layer, make_prior, perturbed, generator):
    together = perturbed(build(spec, generator, (3,)))
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
        torch.testing.assert_close(weights[:, r], expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(log_pq[:, r], expected_pq, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spec", LEARNED, ids=name)
def test_every_parameter_has_a_gradient(spec, make_prior, perturbed, generator):
    module = perturbed(build(spec, generator, (2,)))
    features = normal(generator, SAMPLES, 2, POINTS, FAN_IN).requires_grad_()
    prior = make_prior(generator, FAN_IN, (2,))
    hyper = (prior.scale if isinstance(prior, ScaledIdentity) else prior.block).requires_grad_()
    weights, log_pq = draw_weights(module, features, prior, normal(generator, SAMPLES, 2, FAN_IN, OUTPUTS))
    named = [*module.named_parameters(), ("prior precision", hyper)]
    named += [("features", features)] if module.needs_inducing else []
    upper = {"pseudo.scaled_root": torch.ones(POINTS, POINTS).triu().bool()}
    upper["row_root"] = torch.ones(FAN_IN, FAN_IN).triu(1).bool()
    upper["column_root"] = torch.ones(OUTPUTS, OUTPUTS).triu(1).bool()
    probe = normal(generator, *weights.shape)
    if not isinstance(spec, Factorised | MatrixGaussian):
        assert_gradients(named, (probe * weights).sum(), upper)
    assert_gradients(named, log_pq.sum(), upper)


@pytest.mark.parametrize("spec", LEARNED, ids=name)
def test_gradients_against_finite_differences(spec, make_prior, perturbed, generator):
    module = perturbed(build(spec, generator))
    features = normal(generator, 2, POINTS, FAN_IN).requires_grad_(module.needs_inducing)
    noise, prior = normal(generator, 2, FAN_IN * OUTPUTS), make_prior(generator, FAN_IN)
    names, values = zip(*module.named_parameters(), strict=True)
    module.forward = module.draw

    def function(phi, *parameters):
        state = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(module, state, (phi, prior, noise))

    assert torch.autograd.gradcheck(function, (features, *values), fast_mode=True)


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
        ([FromPrior(), FromPrior(), GLOBAL], NealPrior(), (0, 0, SAMPLES)),
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
