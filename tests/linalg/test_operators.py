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


@pytest.mark.parametrize("lead", LEADS)
def test_dense_scaled_identity(lead, generator):
    scale = positive(generator, *lead)
    dense = ScaledIdentity(scale, 4).dense()
    torch.testing.assert_close(dense, scale[..., None, None] * torch.eye(4))


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_dense_kronecker_identity(repeats, generator):
    block = positive_definite(generator, 3, 2, 4, 4)
    operator = KroneckerIdentity(block, repeats)
    assert operator.size == 4 * repeats
    for s in range(3):
        for r in range(2):
            expected = torch.kron(torch.eye(repeats), block[s, r])
            torch.testing.assert_close(operator.dense()[s, r], expected)


@KINDS
@pytest.mark.parametrize("lead", LEADS)
def test_every_method_against_the_dense_matrix(make, lead, generator):
    operator = make(generator, lead)
    dense = operator.dense()
    weights = normal(generator, *lead, 6, 5)
    assert dense.shape == (*lead, 6, 6)
    torch.testing.assert_close(operator.diagonal(), dense.diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(operator.log_det(), torch.logdet(dense))
    expected = torch.einsum("...io,...ij,...jo->...", weights, dense, weights)
    torch.testing.assert_close(operator.quadratic(weights), expected)
    matrix = normal(generator, *lead, 4, 6, 6)
    torch.testing.assert_close(operator.add_to(matrix), matrix + dense[..., None, :, :])


@KINDS
@pytest.mark.parametrize("lead", LEADS)
def test_colour_is_a_root_of_the_covariance(make, lead, generator):
    operator = make(generator, lead)
    root = operator.sqrt_inv_matmul(torch.eye(6).expand(*lead, 6, 6))
    torch.testing.assert_close(root @ root.mT, torch.linalg.inv(operator.dense()))
    noise = normal(generator, *lead, 6, 5)
    torch.testing.assert_close(operator.sqrt_inv_matmul(noise), root @ noise)


@KINDS
@pytest.mark.parametrize("lead", LEADS)
def test_whiten_is_the_other_side_of_sqrt_inv_matmul(make, lead, generator):
    operator = make(generator, lead)
    features, noise = normal(generator, *lead, 4, 6), normal(generator, *lead, 6, 5)
    pulled = operator.whiten(features)
    torch.testing.assert_close(pulled @ noise, features @ operator.sqrt_inv_matmul(noise))
    covariance = torch.linalg.inv(operator.dense())
    torch.testing.assert_close(pulled @ pulled.mT, features @ covariance @ features.mT)
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
    torch.testing.assert_close(
        operator.quadratic(coloured), weights.square().sum((-2, -1))
    )  # colour undoes the square root
    assert operator.add_to(normal(generator, 4, 2, 3, 6, 6)).shape == (4, 2, 3, 6, 6)


@KINDS
def test_to_another_dtype(make, generator):
    operator = make(generator, (2,))
    single = operator.to(torch.float32)
    assert type(single) is type(operator)
    for tensor in (
        single.dense(),
        single.diagonal(),
        single.log_det(),
        single.sqrt_inv_matmul(torch.ones(2, 6, 1).float()),
    ):
        assert tensor.dtype == torch.float32
    torch.testing.assert_close(single.dense().double(), operator.dense(), rtol=1e-6, atol=1e-6)
    assert operator.dense().dtype == torch.float64


@KINDS
def test_gradients(make, generator):
    operator = make(generator, (2,))
    parameter = (operator.scale if make is scaled else operator.block).requires_grad_()
    noise = normal(generator, 2, 6, 3)

    def methods(p):
        symmetric = p if make is scaled else 0.5 * (p + p.mT)
        op = ScaledIdentity(symmetric, 6) if make is scaled else KroneckerIdentity(symmetric, 2)
        pulled = op.whiten(noise.mT)
        return op.log_det(), op.quadratic(noise), op.sqrt_inv_matmul(noise), pulled, op.diagonal(), op.dense()

    assert torch.autograd.gradcheck(methods, parameter)


@KINDS
def test_vmap_equals_batch(make, generator):
    operator, weights = make(generator, (3,)), normal(generator, 3, 6, 4)
    parameter = operator.scale if make is scaled else operator.block

    def methods(p, w):
        op = ScaledIdentity(p, 6) if make is scaled else KroneckerIdentity(p, 2)
        return (
            op.dense(),
            op.diagonal(),
            op.log_det(),
            op.quadratic(w),
            op.sqrt_inv_matmul(w),
            op.whiten(w.mT),
        )

    batched = torch.func.vmap(methods)(parameter, weights)
    for one, other in zip(batched, methods(parameter, weights), strict=True):
        torch.testing.assert_close(one, other)


def test_an_indefinite_block_is_named():
    operator = KroneckerIdentity(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 2)
    with pytest.raises(FactorisationError, match="the block of the prior precision"):
        operator.log_det()
    with pytest.raises(FactorisationError, match="the block of the prior precision"):
        operator.sqrt_inv_matmul(torch.ones(4, 1))
