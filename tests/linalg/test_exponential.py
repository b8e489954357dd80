"""Exponentials of products: values, dtypes, shapes, gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.linalg import exponential
from gilib.linalg.exponential import Exponents
from tests.support import seeded
from tests.support.oracles import normal

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(scope="module", autouse=True, params=["one by one", "at once"])
def arrangement(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exponential, "MIN_VALUES", 0 if request.param == "one by one" else 2**62)
        yield request.param


LEADS = [((), ()), ((3,), ()), ((), (2,)), ((3, 2), (2,)), ((3, 1), (1, 2)), ((0,), ()), ((2,), (2,))]


@given(st.sampled_from(LEADS), st.integers(1, 4), st.integers(0, 5), st.integers(1, 6), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_values_of_any_shape(leads, width, points, others, seed):
    left = normal(seeded(seed), *leads[0], width, points)
    right = normal(seeded(seed + 1), *leads[1], width, others)
    found = Exponents(left, right, torch.float64).values()
    assert found.shape == (*torch.broadcast_shapes(*leads), points, others)
    torch.testing.assert_close(found, (left.mT @ right).exp(), rtol=1e-13, atol=0)


@pytest.mark.parametrize("leads", [lead for lead in LEADS if lead != ((0,), ())])
def test_gradients_by_finite_differences(leads, generator):
    left = normal(generator, *leads[0], 3, 4).requires_grad_()
    right = normal(generator, *leads[1], 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: Exponents(a, b, torch.float64).values(), (left, right))


def test_exponents_in_float64_values_in_float32(generator):
    """One rounding of the exponent, one of the value: relative errors of (|e| + 2)/2²⁴."""
    left, right = 5.0 * normal(generator, 2, 3, 40), normal(generator, 3, 30)
    exponents = left.mT @ right
    found = Exponents(left, right, torch.float32).values()
    assert found.dtype == torch.float32
    error = (found.double() / exponents.exp() - 1).abs()
    assert bool((error <= (exponents.abs() + 2) * 2**-24).all())
    weights = normal(generator, 2, 40, 30).float()
    left.requires_grad_()
    (gradient,) = torch.autograd.grad((Exponents(left, right, torch.float32).values() * weights).sum(), left)
    terms = (exponents.exp() * weights)[:, None] * right[:, None, :]
    assert gradient.dtype == torch.float64
    allowed = (((exponents.abs() + 4) * 2**-24)[:, None] * terms.abs()).sum(-1)
    assert bool(((gradient - terms.sum(-1)).abs() <= allowed).all())
