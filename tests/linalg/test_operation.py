"""Operations whose gradient is ours: what they refuse rather than give wrong."""

import pytest
import torch

from gilib import projection
from gilib.projection import project
from gilib.regression.primal import sample_from_precision
from gilib.statistics import weighted_gram
from tests.support.oracles import normal, positive_definite

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture
def energy(generator, monkeypatch):
    """A function of kernel values that passes through an operation with a first derivative only."""
    monkeypatch.setattr(projection, "MIN_PRODUCTS", 0)
    inverse, mean = normal(generator, 4, 4).tril(), normal(generator, 4, 2)
    return lambda kernel: project(kernel, inverse, mean, None).square.square().sum()


def test_a_second_derivative_is_refused_rather_than_missing(energy, generator):
    kernel = normal(generator, 3, 4).requires_grad_()
    (slope,) = torch.autograd.grad(energy(kernel), kernel)
    assert slope.abs().max() > 0
    with pytest.raises(RuntimeError, match="no second derivative: leave create_graph out"):
        torch.autograd.grad(energy(kernel), kernel, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.functional.hessian(energy, kernel)


def test_transforms_follow_plain_products(energy, generator, monkeypatch):
    kernel = normal(generator, 3, 4)
    found = torch.func.jacrev(torch.func.jacrev(energy))(kernel)
    monkeypatch.setattr(projection, "MIN_PRODUCTS", 2**62)
    torch.testing.assert_close(found, torch.autograd.functional.hessian(energy, kernel))


def by_differences(function, x):
    """The derivative of a tensor of any shape in all entries of x, `[..., numbers]`."""
    steps = 1e-5 * torch.eye(x.numel()).reshape(-1, *x.shape)
    return torch.stack([(function(x + step) - function(x - step)) / 2e-5 for step in steps], -1)


def drawn(generator, *shape):
    """A function of a precision: what `sample_from_precision` draws from it, and the score."""
    shift, noise = normal(generator, *shape), normal(generator, *shape)

    def function(precision):
        values, log_q = sample_from_precision(0.5 * (precision + precision.mT), shift, noise)
        return values.square().sum() + log_q.sum()

    return function


def test_second_derivatives_of_a_draw_and_of_statistics(generator):
    """Of the regression that every layer draws from, and of Gram matrices with a weight for every output."""
    weights = normal(generator, 9, 5)
    for function, x in (
        (drawn(generator, 2, 3, 4), positive_definite(generator, 2, 3, 3)),
        (lambda features: weighted_gram(features, weights).sin().sum(), normal(generator, 5, 3)),
    ):
        found = torch.func.jacrev(torch.func.jacrev(function))(x)
        expected = by_differences(torch.func.grad(function), x)
        torch.testing.assert_close(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-6)


def test_a_batch_within_a_second_derivative(generator):
    """`vmap` between two derivatives: the tensors of the inner one are wrapped twice."""
    draw, precisions = drawn(generator, 1, 3, 2), positive_definite(generator, 4, 1, 3, 3)

    def steepness(x, map=torch.func.vmap):
        return map(torch.func.grad(draw))(x).square().sum()

    def one_by_one(function):
        return lambda x: torch.stack([function(part) for part in x])

    found = torch.func.grad(steepness)(precisions)
    torch.testing.assert_close(found, torch.func.grad(lambda x: steepness(x, one_by_one))(precisions))
    differences = by_differences(steepness, precisions)
    torch.testing.assert_close(found.flatten(), differences, rtol=1e-5, atol=1e-6)
    inner = torch.func.grad(lambda x: torch.func.vmap(draw)(x).sum())
    torch.testing.assert_close(torch.func.grad(lambda x: inner(x).square().sum())(precisions), found)
