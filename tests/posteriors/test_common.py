"""What holds for every posterior: replicas, the generator of initial values, and what a draw costs."""

import pytest
import torch
from torch import nn

import gilib
from gilib.linalg import KroneckerIdentity, ScaledIdentity
from gilib.posteriors import BuildContext, Factorised, GlobalInducing, LocalInducing, MatrixGaussian
from gilib.priors import NealPrior, ScalePrior, SpatialIWPrior
from gilib.sites import DenseWeights
from tests.support import PRECISIONS, assert_equal, shaken
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
