"""Gram matrices of one precision: values, gradients of any order, transforms; as an operation and plainly."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib import statistics
from gilib.statistics import shared_gram
from tests.helpers import normal, positive, seeded

pytestmark = pytest.mark.usefixtures("float64")
EXACT = {"rtol": 1e-12, "atol": 1e-12}
LEADS = {  # of features and of precisions
    "one": ((), ()),
    "samples": ((4,), ()),
    "samples of both": ((4,), (4,)),
    "replicas": ((4, 3), (3,)),
    "shared features": ((3,), (4, 3)),
    "no precision": ((4,), None),
}
BOTH = pytest.mark.parametrize("name", LEADS)


@pytest.fixture(scope="module", autouse=True, params=["operation", "plain"])
def arrangement(request):
    """Whatever their size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "LEAST", 0 if request.param == "operation" else 2**62)
        yield request.param


def arguments(name, sizes, generator):
    lead, parameters = LEADS[name]
    features = normal(generator, *lead, *sizes).requires_grad_()
    if parameters is None:
        return (features,)
    return features, positive(generator, *parameters, sizes[0]).requires_grad_()


def by_rows(features, precision=None):
    """Σ_m λ_m φ_m φ_mᵀ as it stands."""
    weighted = features if precision is None else precision[..., None] * features
    return (weighted[..., :, None] * features[..., None, :]).sum(-3)


@given(st.sampled_from(list(LEADS)), st.tuples(st.integers(1, 6), st.integers(1, 6)), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_values_and_gradients_for_all_shapes(name, sizes, seed):
    given_values = arguments(name, sizes, seeded(seed))
    ours, theirs = shared_gram(*given_values), by_rows(*given_values)
    torch.testing.assert_close(ours, theirs, **EXACT)
    upstream = normal(seeded(seed + 1), *ours.shape)  # not symmetric
    pairs = (torch.autograd.grad(value, given_values, upstream) for value in (ours, theirs))
    for found, wanted in zip(*pairs, strict=True):
        torch.testing.assert_close(found, wanted, **EXACT)


@BOTH
def test_second_derivatives(name, generator):
    given_values = arguments(name, (3, 2), generator)
    assert torch.autograd.gradcheck(shared_gram, given_values)
    assert torch.autograd.gradgradcheck(shared_gram, given_values)


@BOTH
def test_a_gradient_of_one_argument_alone(name, generator):
    for wanted in range(len(arguments(name, (3, 2), generator))):
        given_values = [value.detach() for value in arguments(name, (3, 2), generator)]
        given_values[wanted].requires_grad_()
        (found,) = torch.autograd.grad(shared_gram(*given_values).sin().sum(), given_values[wanted])
        (exact,) = torch.autograd.grad(by_rows(*given_values).sin().sum(), given_values[wanted])
        torch.testing.assert_close(found, exact, **EXACT)


@BOTH
def test_transforms(name, generator):
    """Batches, derivatives along a direction, and batches of gradients."""
    one = [value.detach() for value in arguments(name, (3, 2), generator)]
    many = [torch.stack([value, 2.0 * value]) for value in one]
    expected = torch.stack([by_rows(*each) for each in zip(*many, strict=True)])
    torch.testing.assert_close(torch.func.vmap(shared_gram)(*many), expected, **EXACT)
    directions = tuple(torch.ones_like(value) for value in one)
    for found, exact in zip(
        torch.func.jvp(shared_gram, tuple(one), directions),
        torch.func.jvp(by_rows, tuple(one), directions),
        strict=True,
    ):
        torch.testing.assert_close(found, exact, **EXACT)
    slopes = [
        torch.func.vmap(torch.func.grad(lambda *parts, f=function: f(*parts).sin().sum()))(*many)
        for function in (shared_gram, by_rows)
    ]
    torch.testing.assert_close(*slopes, **EXACT)


def test_float32_stays_float32(generator):
    features, precision = normal(generator, 4, 30, 9), positive(generator, 30)
    single = shared_gram(features.float(), precision.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), shared_gram(features, precision), rtol=1e-5, atol=1e-5)
