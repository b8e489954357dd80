"""Structured precisions against the dense matrix; what operations with gradients of ours refuse."""

import pytest
import torch

from gilib import projection
from gilib.linalg import FactorisationError, KroneckerIdentity, ScaledIdentity
from gilib.projection import project
from gilib.regression.primal import sample_from_precision
from gilib.statistics import weighted_gram
from tests.support.oracles import normal, positive, positive_definite

pytestmark = pytest.mark.usefixtures("float64")
LEADS = [(), (3, 2)]


def scaled(generator, lead=()):
    return ScaledIdentity(positive(generator, *lead), 6)


def kronecker(generator, lead=()):
    return KroneckerIdentity(positive_definite(generator, *lead, 3, 3), 2)


KINDS = pytest.mark.parametrize("make", [scaled, kronecker])


def own(operator):
    return operator.scale if isinstance(operator, ScaledIdentity) else operator.block


def of(make, tensor):
    return ScaledIdentity(tensor, 6) if make is scaled else KroneckerIdentity(tensor, 2)


def methods(operator, columns):
    """What they give for columns `[..., 6, O]`."""
    found = operator.dense(), operator.diagonal(), operator.log_det(), operator.quadratic(columns)
    return *found, operator.sqrt_inv_matmul(columns), operator.whiten(columns.mT)


def test_dense_matrices(generator):
    scale, block = positive(generator, 3, 2), positive_definite(generator, 3, 2, 4, 4)
    torch.testing.assert_close(ScaledIdentity(scale, 4).dense(), scale[..., None, None] * torch.eye(4))
    assert torch.equal(ScaledIdentity(scale[0, 0], 4).dense(), scale[0, 0] * torch.eye(4))
    for repeats in (1, 2, 5):
        operator = KroneckerIdentity(block, repeats)
        assert operator.size == 4 * repeats
        expected = [torch.kron(torch.eye(repeats), own) for own in block.flatten(0, 1)]
        torch.testing.assert_close(operator.dense().flatten(0, 1), torch.stack(expected))


@KINDS
@pytest.mark.parametrize("lead", LEADS)
def test_every_method_against_the_dense_matrix(make, lead, generator):
    """P^-½ is a root of the covariance, from the left and from the right."""
    operator = make(generator, lead)
    dense = operator.dense()
    weights, features = normal(generator, *lead, 6, 5), normal(generator, *lead, 4, 6)
    assert dense.shape == (*lead, 6, 6)
    torch.testing.assert_close(operator.diagonal(), dense.diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(operator.log_det(), torch.logdet(dense))
    expected = torch.einsum("...io,...ij,...jo->...", weights, dense, weights)
    torch.testing.assert_close(operator.quadratic(weights), expected)
    matrix = normal(generator, *lead, 4, 6, 6)
    torch.testing.assert_close(operator.add_to(matrix), matrix + dense[..., None, :, :])
    root = operator.sqrt_inv_matmul(torch.eye(6).expand(*lead, 6, 6))
    torch.testing.assert_close(root @ root.mT, torch.linalg.inv(dense))
    torch.testing.assert_close(operator.sqrt_inv_matmul(weights), root @ weights)
    torch.testing.assert_close(operator.whiten(features), features @ root)
    assert make(generator).whiten(features).shape == features.shape


@KINDS
def test_an_operator_without_leading_axes_serves_weights_with_them(make, generator):
    operator = make(generator)
    weights = normal(generator, 4, 2, 6, 5)
    dense = operator.dense()
    expected = torch.einsum("srio,ij,srjo->sr", weights, dense, weights)
    torch.testing.assert_close(operator.quadratic(weights), expected)
    coloured = operator.sqrt_inv_matmul(weights)
    assert coloured.shape == weights.shape
    torch.testing.assert_close(operator.quadratic(coloured), weights.square().sum((-2, -1)))
    assert operator.add_to(normal(generator, 4, 2, 3, 6, 6)).shape == (4, 2, 3, 6, 6)


@KINDS
def test_to_another_dtype(make, generator):
    operator = make(generator, (2,))
    single = operator.to(torch.float32)
    assert type(single) is type(operator)
    assert {part.dtype for part in methods(single, torch.ones(2, 6, 1).float())} == {torch.float32}
    torch.testing.assert_close(single.dense().double(), operator.dense(), rtol=1e-6, atol=1e-6)
    assert operator.dense().dtype == torch.float64


@KINDS
def test_gradients_and_vmap(make, generator):
    parameter, columns = own(make(generator, (2,))).requires_grad_(), normal(generator, 2, 6, 3)

    def results(p, columns):
        return methods(of(make, p if make is scaled else 0.5 * (p + p.mT)), columns)

    assert torch.autograd.gradcheck(lambda p: results(p, columns), parameter)
    batched = torch.func.vmap(results)(parameter, columns)
    for one, other in zip(batched, results(parameter, columns), strict=True):
        torch.testing.assert_close(one, other)


def test_an_indefinite_block_is_named():
    operator = KroneckerIdentity(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 2)
    with pytest.raises(FactorisationError, match="the block of the prior precision"):
        operator.log_det()


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
