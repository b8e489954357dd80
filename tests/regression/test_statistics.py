"""Sufficient statistics against sums written out, and the hand-written gradient of the triangle product."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gilib.statistics
from gilib.linalg import blocks
from gilib.statistics import full_statistics, per_output_statistics, shared_statistics, weighted_gram
from tests.support import seeded
from tests.support.oracles import (
    assert_equal_with_gradients,
    assert_vmap_equals_loop,
    normal,
    positive,
    stacked,
)

pytestmark = pytest.mark.usefixtures("float64")

EXACT = {"rtol": 1e-12, "atol": 1e-12}
POINTS, FAN_IN, OUTPUTS = 5, 3, 4
# leading axes of the features and of the parameters: none, samples, samples and replicas
LEADS = pytest.mark.parametrize(
    ("lead", "parameters"),
    [
        ((), ()),  # one function
        ((6,), ()),  # samples
        ((6, 2), (2,)),  # samples and replicas
        ((6, 2), ()),  # replicas that share their parameters
        ((2,), (2,)),  # first layer: replicas, no sample axis
        ((), (2,)),  # first layer: the replicas share the features
        ((6, 1), (2,)),  # an axis of one
        ((6, 2, 3), (2, 3)),  # two replica axes
    ],
)


@pytest.fixture(params=["triangle", "products"], autouse=True)
def route(request, monkeypatch):
    """Every test takes both routes to the per-output Gram matrices, however many outputs it has."""
    monkeypatch.setattr(gilib.statistics, "FEW_OUTPUTS", 0 if request.param == "triangle" else 10**6)
    return request.param


def plain_gram(features, weights):
    return torch.einsum("...mi,...om,...mj->...oij", *broadcast_leads(features, weights), features)


def broadcast_leads(features, weights):
    """Spell out the leading axes, since einsum aligns them from the left of the ellipsis only."""
    lead = torch.broadcast_shapes(features.shape[:-2], weights.shape[:-2])
    return features.expand(*lead, *features.shape[-2:]), weights.expand(*lead, *weights.shape[-2:])


def loop_statistics(features, targets, precisions):
    """A_o and b_o of one function by loops: Φ `[M, I]`, V `[M, O]` and O matrices Λ_o `[M, M]`."""
    gram = torch.stack([features.mT @ precision @ features for precision in precisions])
    cross = torch.stack(
        [features.mT @ precision @ v for precision, v in zip(precisions, targets.mT, strict=True)]
    )
    return gram, cross  # [O, I, I], [O, I]


def test_all_three_against_loops(generator):
    features, targets = normal(generator, POINTS, FAN_IN), normal(generator, POINTS, OUTPUTS)
    shared, separate = positive(generator, POINTS), positive(generator, OUTPUTS, POINTS)
    root = normal(generator, POINTS, POINTS).tril()
    for function, own, precisions in (
        (shared_statistics, shared, [torch.diag(shared)] * OUTPUTS),
        (per_output_statistics, separate, [torch.diag(row) for row in separate]),
        (full_statistics, root, [root @ root.mT] * OUTPUTS),
    ):
        gram, cross = loop_statistics(features, targets, precisions)
        found = function(features, targets, own)
        torch.testing.assert_close(found.gram.expand(OUTPUTS, FAN_IN, FAN_IN), gram, **EXACT)
        torch.testing.assert_close(found.cross.mT.reshape(OUTPUTS, FAN_IN), cross, **EXACT)


SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3), *(st.integers(1, 6),) * 3)
AXES = st.sampled_from(
    [("", ""), ("s", ""), ("s", "r"), ("sr", ""), ("sr", "r"), ("r", "r"), ("", "r"), ("s1", "r")]
)


def leads_of(sizes, axes):
    """Leading axes of features and parameters; with one axis each, it is the same one."""
    named = {"s": sizes[1] if axes == ("s", "r") else sizes[0], "r": sizes[1], "1": 1}
    return [[named[axis] for axis in which] for which in axes]


def assert_plain(features, weights):
    features, weights = features.requires_grad_(), weights.requires_grad_()
    gram = weighted_gram(features, weights)
    torch.testing.assert_close(gram, gram.mT, **EXACT)
    assert_equal_with_gradients(gram, plain_gram(features, weights), (features, weights))


@given(SHAPES, AXES, st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_weighted_gram_and_its_gradients_for_all_shapes(sizes, axes, seed):
    lead, parameters, (points, fan_in, outputs) = *leads_of(sizes, axes), sizes[2:]
    generator = seeded(seed)
    assert_plain(normal(generator, *lead, points, fan_in), normal(generator, *parameters, outputs, points))


@pytest.mark.parametrize("matrices", [0, 2, 9])
@LEADS
def test_pieces_of_any_size_give_the_same(lead, parameters, matrices, generator, monkeypatch):
    """Some of the outputs, of the replicas or of the samples at a time, the last piece smaller."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8 * matrices * POINTS * FAN_IN)
    assert_plain(normal(generator, *lead, POINTS, FAN_IN), normal(generator, *parameters, 7, POINTS))


def test_a_second_derivative_is_right_or_refused(route, generator):
    features, weights = normal(generator, POINTS, FAN_IN).requires_grad_(), normal(generator, OUTPUTS, POINTS)
    total = weighted_gram(features, weights).sin().sum()
    if route == "triangle":
        with pytest.raises(RuntimeError, match="this operation has no second derivative"):
            torch.autograd.grad(total, features, create_graph=True)
        return
    (gradient,) = torch.autograd.grad(total, features, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sin().sum(), features)
    (plain,) = torch.autograd.grad(plain_gram(features, weights).sin().sum(), features, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(plain.sin().sum(), features)[0])


def test_float32_stays_float32(generator):
    features, weights = normal(generator, 4, 30, 9), positive(generator, OUTPUTS, 30)
    single = weighted_gram(features.float(), weights.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), weighted_gram(features, weights), rtol=1e-5, atol=1e-5)


IN_DIMS = pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (-3, 0), (0, -3)])


@pytest.mark.parametrize(
    ("lead", "parameters", "in_dims"),
    [(*lead, (-3, 0)) for lead in LEADS.args[1]]
    + [((6, 2), (2,), in_dims) for in_dims in IN_DIMS.args[1] if in_dims != (-3, 0)],
)
def test_vmap_equals_loop(lead, parameters, in_dims, generator):
    features = normal(generator, *lead, POINTS, FAN_IN).requires_grad_()
    weights = normal(generator, *parameters, OUTPUTS, POINTS).requires_grad_()
    arguments, each = stacked((features, weights), in_dims)
    expected = torch.stack([weighted_gram(*one) for one in each])
    output = torch.func.vmap(weighted_gram, in_dims)(*arguments)
    assert_equal_with_gradients(output, expected, (features, weights))


@IN_DIMS
def test_vmap_of_the_gradient_equals_loop_and_nested_vmap_the_batch(in_dims, generator):
    features, weights = normal(generator, 6, 2, POINTS, FAN_IN), normal(generator, 2, OUTPUTS, POINTS)
    function = torch.func.grad(lambda phi, lam: weighted_gram(phi, lam).sin().sum(), argnums=(0, 1))
    assert_vmap_equals_loop(function, (features, weights), in_dims)
    nested = torch.func.vmap(torch.func.vmap(weighted_gram), in_dims=(0, None))(features, weights)
    torch.testing.assert_close(nested, weighted_gram(features, weights), **EXACT)
