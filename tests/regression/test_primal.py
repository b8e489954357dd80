"""The engine through the precision, and the gradient of a draw; `test_dual` compares both routes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.linalg import FactorisationError, KroneckerIdentity, ScaledIdentity, blocks
from gilib.regression import WeightPosterior, regress
from gilib.regression.primal import merge_outputs, sample_from_precision, split_outputs
from gilib.statistics import per_output_statistics, shared_statistics
from tests.support import seeded
from tests.support.oracles import (
    Operations,
    assert_equal_with_gradients,
    assert_vmap_equals_loop,
    columns_log_prob,
    normal,
    plain_sample,
    positive,
    positive_definite,
    stacked,
)

pytestmark = pytest.mark.usefixtures("float64")
EXACT = {"rtol": 1e-12, "atol": 1e-12}
POINTS, FAN_IN, OUTPUTS = 5, 6, 4


def scaled(generator):
    return ScaledIdentity(1.7 * positive(generator), FAN_IN)


def test_a_prior_with_samples_on_statistics_without(generator):
    """A drawn prior scale makes the precision differ by sample although the statistics do not."""
    scale, noise = positive(generator, 3), normal(generator, 3, FAN_IN, OUTPUTS)
    features, targets = normal(generator, POINTS, FAN_IN), normal(generator, POINTS, OUTPUTS)
    statistics = shared_statistics(features, targets, positive(generator, POINTS))
    weights, log_pq = regress(statistics, ScaledIdentity(scale, FAN_IN)).draw(noise)
    for s in range(3):
        expected, expected_pq = regress(statistics, ScaledIdentity(scale[s], FAN_IN)).draw(noise[s])
        torch.testing.assert_close(weights[s], expected, **EXACT)
        torch.testing.assert_close(log_pq[s], expected_pq, **EXACT)


SHAPES = st.tuples(*(st.integers(1, 5),) * 3)


@given(SHAPES, st.sampled_from([(), (3,), (3, 2)]), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_draw_for_all_shapes(sizes, lead, seed):
    points, fan_in, outputs = sizes
    generator = seeded(seed)
    features, targets = normal(generator, *lead, points, fan_in), normal(generator, *lead, points, outputs)
    precision = positive(generator, *lead, outputs, points)
    prior = ScaledIdentity(positive(generator, *lead), fan_in)
    posterior = regress(per_output_statistics(features, targets, precision), prior)
    weights, log_pq = posterior.draw(normal(generator, *lead, fan_in, outputs))
    noise = torch.diag_embed(1 / precision)
    evidence = (features @ features.mT / prior.scale[..., None, None])[..., None, :, :] + noise
    expected = columns_log_prob(targets, torch.zeros_like(targets), evidence)
    expected = expected - columns_log_prob(targets, features @ weights, noise)
    torch.testing.assert_close(log_pq, expected, rtol=0, atol=1e-9)


@given(st.lists(st.integers(1, 3), max_size=2), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_outputs_are_split_group_by_group(lead, groups, columns, fan_in):
    weights = normal(seeded(0), *lead, fan_in, groups * columns)
    blocks = split_outputs(weights, columns)
    assert blocks.shape == (*lead, groups, fan_in, columns)
    for g in range(groups):
        for c in range(columns):
            assert torch.equal(blocks[..., g, :, c], weights[..., g * columns + c])
    assert torch.equal(merge_outputs(blocks), weights)
    assert torch.equal(split_outputs(merge_outputs(blocks), columns), blocks)


def test_float32_equals_float64(generator):
    features, targets = normal(generator, 30, FAN_IN), normal(generator, 30, OUTPUTS)
    statistics = per_output_statistics(features, targets, positive(generator, OUTPUTS, 30))
    noise = normal(generator, 5, FAN_IN, OUTPUTS)
    prior = KroneckerIdentity(1.7 * positive_definite(generator, 3, 3), FAN_IN // 3)
    weights, log_pq = regress(statistics, prior).draw(noise)
    single = type(statistics)(*(part.float() for part in statistics))
    weights32, log_pq32 = regress(single, prior.to(torch.float32)).draw(noise.float())
    assert weights32.dtype == log_pq32.dtype == torch.float32
    torch.testing.assert_close(weights32.double(), weights, rtol=1e-5, atol=1e-5 * float(weights.abs().max()))
    torch.testing.assert_close(log_pq32.double(), log_pq, rtol=1e-5, atol=1e-5 * float(log_pq.abs().max()))


def test_a_failure_names_the_posterior_precision(generator):
    bad = WeightPosterior(-torch.eye(FAN_IN)[None], torch.zeros(1, FAN_IN, OUTPUTS), scaled(generator))
    for attempt in (
        lambda: bad.draw(torch.zeros(FAN_IN, OUTPUTS)),
        lambda: bad.mean,
        lambda: bad.covariance,
        lambda: bad.log_prob(torch.zeros(FAN_IN, OUTPUTS)),
    ):
        with pytest.raises(FactorisationError, match="the posterior precision is not positive definite"):
            attempt()


def test_a_factor_without_sample_axis_is_computed_once(generator):
    precision, shift = positive_definite(generator, 2, 1, 4, 4), normal(generator, 2, 1, 4, 3)
    with Operations() as operations:
        sample_from_precision(precision, shift, normal(generator, 50, 2, 1, 4, 3))
    assert operations.factorised == [(2, 4, 4)]


# leading axes of precision, shift and noise
CASES = {
    "one function": ((), (), ()),
    "samples": ((3,), (3,), (3,)),
    "samples and replicas": ((3, 2), (3, 2), (3, 2)),
    "first layer": ((), (), (3,)),
    "first layer with replicas": ((2,), (2,), (3, 2)),
    "drawn prior scale": ((3,), (), (3,)),
    "drawn prior scale with replicas": ((3, 2), (2,), (3, 2)),
    "shift alone has samples": ((), (3,), (3,)),
    "axes of one": ((1, 2), (3, 1), (3, 2)),
}
LEADS = pytest.mark.parametrize("leads", CASES.values(), ids=CASES.keys())


def arguments(generator, leads, size=3, groups=1, columns=2):
    precision = positive_definite(generator, *leads[0], groups, size, size)
    shift = normal(generator, *leads[1], groups, size, columns)
    noise = normal(generator, *leads[2], groups, size, columns)
    return [x.requires_grad_() for x in (precision, shift, noise)]


def assert_equals_autograd(inputs):
    """Values and all gradients agree with those of the plain computation to 1e-12 of their largest entry."""
    outputs, expected = sample_from_precision(*inputs), plain_sample(*inputs)
    in_precision, *_ = assert_equal_with_gradients(outputs, expected, inputs)
    torch.testing.assert_close(in_precision, in_precision.mT, **EXACT)


@LEADS
@pytest.mark.parametrize(("groups", "columns", "matrices"), [(1, 4, 0), (4, 1, 2), (2, 3, 5)])
def test_pieces_of_any_size_give_the_same(leads, groups, columns, matrices, generator, monkeypatch):
    """One matrix at a time, two, or five, whatever their number is."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2 * 8 * matrices * 5**2)
    assert_equals_autograd(arguments(generator, leads, 5, groups, columns))


@given(*(st.integers(1, 5),) * 3, st.sampled_from(list(CASES.values())), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_gradient_equals_autograd_for_all_shapes(size, groups, columns, leads, seed):
    assert_equals_autograd(arguments(seeded(seed), leads, size, groups, columns))


@pytest.mark.parametrize("wanted", [0, 1, 2])
@pytest.mark.parametrize("output", [0, 1])
def test_one_argument_and_one_output_at_a_time(wanted, output, generator):
    inputs = [x.detach() for x in arguments(generator, ((), (3,), (3,)), 4, 2, 3)]
    inputs[wanted].requires_grad_()
    drawn, plain = sample_from_precision(*inputs)[output], plain_sample(*inputs)[output]
    assert_equal_with_gradients(drawn, plain, [inputs[wanted]])


def test_backward_neither_factorises_nor_solves_and_has_no_derivative(generator):
    inputs = arguments(generator, ((), (3,), (3,)), 40, 2, 3)
    drawn, log_q = sample_from_precision(*inputs)
    with Operations() as operations:
        torch.autograd.grad(drawn.sum() + log_q.sum(), inputs, retain_graph=True)
    assert operations.count
    names = [name for name in operations.count if "linalg" in name or "cholesky" in name or "solve" in name]
    assert names == []
    with pytest.raises(RuntimeError, match="this operation has no second derivative"):
        torch.autograd.grad(drawn.sin().sum(), inputs[0], create_graph=True)


@pytest.mark.parametrize(
    ("leads", "in_dims"),
    [(leads, (-3, 0, -3)) for leads in CASES.values()]
    + [(CASES["first layer with replicas"], dims) for dims in [(0, 0, 0), (None, None, 0), (0, None, None)]]
    + [(CASES["samples"], (None, 0, None))],
)
def test_vmap_equals_loop(leads, in_dims, generator):
    inputs = arguments(generator, leads)
    batched, each = stacked(inputs, in_dims)
    outputs = torch.func.vmap(sample_from_precision, in_dims)(*batched)
    expected = map(torch.stack, zip(*(sample_from_precision(*one) for one in each), strict=True))
    assert_equal_with_gradients(outputs, list(expected), inputs)


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (None, None, 0), (0, None, None), (None, 0, None)])
@pytest.mark.parametrize("leads", [((), (), ()), ((), (2,), (2,))])
def test_vmap_of_the_gradient_equals_loop(leads, in_dims, generator):
    def scalar(*inputs):
        drawn, log_q = sample_from_precision(*inputs)
        return drawn.sin().sum() + (0.1 * log_q).sin().sum()

    inputs = [x.detach() for x in arguments(generator, leads)]
    assert_vmap_equals_loop(torch.func.grad(scalar, argnums=(0, 1, 2)), inputs, in_dims)


def test_float32_gradient_equals_float64(generator):
    inputs = arguments(generator, ((), (3,), (3,)), 20, 2, 3)
    gradients = torch.autograd.grad(sum(x.sum() for x in sample_from_precision(*inputs)), inputs)
    singles = [x.detach().float().requires_grad_() for x in inputs]
    single_gradients = torch.autograd.grad(sum(x.sum() for x in sample_from_precision(*singles)), singles)
    for single, gradient in zip(single_gradients, gradients, strict=True):
        assert single.dtype == torch.float32
        scale = float(gradient.abs().max())
        torch.testing.assert_close(single.double(), gradient, rtol=0, atol=1e-5 * scale)
