"""Quadratic forms against einsum: any shapes, and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.linalg.quadratic import quadratic_forms
from tests.helpers import normal, positive_definite, seeded

pytestmark = pytest.mark.usefixtures("float64")
LEADS = [((), ()), ((3,), ()), ((), (2,)), ((3, 2), (2,)), ((3, 1), (1, 2)), ((2,), (2,))]


def plain(vectors, matrices):
    return torch.einsum("...mn,...omk,...kn->...on", vectors, matrices, vectors)


@given(st.sampled_from(LEADS), st.integers(1, 5), st.integers(1, 6), st.integers(1, 7), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_values_of_any_shape(leads, outputs, size, points, seed):
    generator = seeded(seed)
    vectors = normal(generator, *leads[0], size, points)
    matrices = positive_definite(generator, *leads[1], outputs, size, size)
    found = quadratic_forms(vectors, matrices)
    assert found.shape == (*torch.broadcast_shapes(*leads), outputs, points)
    torch.testing.assert_close(found, plain(vectors, matrices), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("leads", LEADS)
def test_gradients_by_finite_differences_and_by_autograd(leads, generator):
    """In the vectors, and in a root of the matrices, which stay symmetric."""
    vectors = normal(generator, *leads[0], 3, 4).requires_grad_()
    roots = normal(generator, *leads[1], 2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda v, r: quadratic_forms(v, r @ r.mT), (vectors, roots))
    weights = normal(generator, *torch.broadcast_shapes(*leads), 2, 4)
    ours = torch.autograd.grad(quadratic_forms(vectors, roots @ roots.mT), (vectors, roots), weights)
    theirs = torch.autograd.grad(plain(vectors, roots @ roots.mT), (vectors, roots), weights)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("needed", ["vectors", "matrices"])
def test_a_gradient_of_one_of_them(needed, generator):
    vectors, root = normal(generator, 3, 4), normal(generator, 2, 3, 3)
    matrices = root @ root.mT
    inputs = {"vectors": vectors, "matrices": matrices}
    inputs[needed].requires_grad_()
    weights = normal(generator, 2, 4)
    (ours,) = torch.autograd.grad(quadratic_forms(vectors, matrices), inputs[needed], weights)
    (theirs,) = torch.autograd.grad(plain(vectors, matrices), inputs[needed], weights)
    if needed == "matrices":  # of a symmetric matrix only the symmetric part of a gradient has a meaning
        ours, theirs = ours + ours.mT, theirs + theirs.mT
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_never_negative_and_in_the_dtype_of_its_arguments(generator):
    vectors, root = normal(generator, 5, 9).float(), normal(generator, 2, 5, 2).float()
    values = quadratic_forms(vectors, root @ root.mT)
    assert values.dtype == torch.float32
    assert bool((values > -1e-4).all())
