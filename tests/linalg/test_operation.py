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
    """The Hessian, from first derivatives of `torch.func`."""
    slope, columns = torch.func.grad(function), []
    for direction in 1e-5 * torch.eye(x.numel()).reshape(-1, *x.shape):
        columns.append((slope(x + direction) - slope(x - direction)).flatten() / 2e-5)
    return torch.stack(columns, -1)


def test_second_derivatives_of_a_draw_and_of_statistics(generator):
    """Of the regression that every layer draws from, and of Gram matrices with a weight for every output."""
    shift, noise, weights = (normal(generator, *size) for size in ((2, 3, 4), (2, 3, 4), (9, 5)))

    def draw(precision):
        values, log_q = sample_from_precision(0.5 * (precision + precision.mT), shift, noise)
        return values.square().sum() + log_q.sum()

    def gram(features):
        return weighted_gram(features, weights).sin().sum()

    for function, x in ((draw, positive_definite(generator, 2, 3, 3)), (gram, normal(generator, 5, 3))):
        found = torch.func.jacrev(torch.func.jacrev(function))(x).reshape(x.numel(), -1)
        torch.testing.assert_close(found, by_differences(function, x), rtol=1e-5, atol=1e-6)


def test_a_batch_within_a_second_derivative(generator):
    """`vmap` between two derivatives: the tensors of the inner one are wrapped twice."""
    shift, noise = normal(generator, 1, 3, 2), normal(generator, 1, 3, 2)
    precisions = positive_definite(generator, 4, 1, 3, 3)

    def draw(precision):
        values, log_q = sample_from_precision(0.5 * (precision + precision.mT), shift, noise)
        return values.square().sum() + log_q.sum()

    def steepness(x, map=torch.func.vmap):
        return map(torch.func.grad(draw))(x).square().sum()

    def one_by_one(function):
        return lambda x: torch.stack([function(part) for part in x])

    found = torch.func.grad(steepness)(precisions)
    torch.testing.assert_close(found, torch.func.grad(lambda x: steepness(x, one_by_one))(precisions))
    torch.testing.assert_close(
        found.flatten(), by_differences_once(steepness, precisions), rtol=1e-5, atol=1e-6
    )
    inner = torch.func.grad(lambda x: torch.func.vmap(draw)(x).sum())
    torch.testing.assert_close(torch.func.grad(lambda x: inner(x).square().sum())(precisions), found)


def by_differences_once(function, x):
    """The gradient, from values."""
    steps = 1e-5 * torch.eye(x.numel()).reshape(-1, *x.shape)
    return torch.stack([(function(x + step) - function(x - step)) / 2e-5 for step in steps])
