"""The gradient of a draw from a precision, against finite differences and against autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.linalg import blocks
from gilib.regression.primal import sample_from_precision
from tests.support import seeded
from tests.support.oracles import (
    Operations,
    assert_equal_with_gradients,
    assert_vmap_equals_loop,
    normal,
    plain_sample,
    positive_definite,
    stacked,
)

pytestmark = pytest.mark.usefixtures("float64")
EXACT = {"rtol": 1e-12, "atol": 1e-12}

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
    """Precision, shift and noise, which require gradients."""
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
