"""Structured precisions: every method against the dense matrix."""

import pytest
import torch

from gilib.linalg import FactorisationError, KroneckerIdentity, ScaledIdentity
from tests.support.oracles import normal, positive, positive_definite

pytestmark = pytest.mark.usefixtures("float64")
LEADS = [(), (3, 2)]


def scaled(generator, lead=()):
    return ScaledIdentity(positive(generator, *lead), 6)


def kronecker(generator, lead=()):
    return KroneckerIdentity(positive_definite(generator, *lead, 3, 3), 2)


KINDS = pytest.mark.parametrize("make", [scaled, kronecker])


def own(operator):
    """The tensor that it is made of."""
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
