"""Cholesky factors and their inverses against torch.linalg, their cost, and their failures."""

import pickle

import pytest
import torch

from gilib.linalg import FactorisationError, blocks, cholesky, factor, inverse_cholesky
from gilib.linalg.factor import LEAF, leaf
from tests.support.oracles import Operations, assert_equal_with_gradients, normal, positive_definite

pytestmark = pytest.mark.usefixtures("float64")
BOTH = pytest.mark.parametrize("factorise", [cholesky, inverse_cholesky])


def indefinite(generator, size):
    """A symmetric matrix with one eigenvalue of -1/2, the others above 1."""
    basis = torch.linalg.qr(normal(generator, size, size)).Q
    eigenvalues = torch.linspace(-0.5, 3.0, size)
    return basis @ torch.diag(eigenvalues) @ basis.mT


@pytest.mark.parametrize("size", [1, 2, 9, LEAF, LEAF + 1, 31, 32, 33, 51, 64, 65, 70])
def test_factors_of_every_size(size, generator):
    matrix = positive_definite(generator, 2, size, size)
    oracle = torch.linalg.cholesky(matrix)
    torch.testing.assert_close(cholesky(matrix), oracle, rtol=0, atol=0)
    inverse = inverse_cholesky(matrix)
    torch.testing.assert_close(inverse, torch.linalg.inv(oracle), rtol=1e-11, atol=1e-11)
    assert torch.equal(inverse, inverse.tril())


def test_views_that_are_not_contiguous(generator):
    matrix = positive_definite(generator, 3, 4, 20, 20)
    swapped = matrix.transpose(0, 1)
    torch.testing.assert_close(inverse_cholesky(swapped), inverse_cholesky(matrix).transpose(0, 1))
    every_other = matrix[:, :, ::2, ::2]
    torch.testing.assert_close(inverse_cholesky(every_other), torch.linalg.cholesky(every_other).inverse())


@BOTH
@pytest.mark.parametrize("size", [5, 51])
def test_only_the_lower_triangle_is_read_and_the_dtype_is_kept(factorise, size, generator):
    matrix = positive_definite(generator, 2, size, size)
    spoilt = torch.where(torch.ones(size, size).triu(1).bool(), torch.nan, matrix)
    torch.testing.assert_close(factorise(spoilt), factorise(matrix), rtol=1e-13, atol=1e-13)
    single = factorise(matrix.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), factorise(matrix), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 11, 40])
@pytest.mark.parametrize("size", [3, LEAF, LEAF + 1, 51, 129])
def test_large_matrices_are_factorised_in_small_leaves_that_add_up_to_them(size, count, generator):
    matrix = positive_definite(generator, count, size, size)
    with Operations() as operations:
        found = inverse_cholesky(matrix)
    sizes = [shape[-1] for shape in operations.factorised]
    assert sum(sizes) == size and max(sizes) <= leaf(count) and (len(sizes) == 1 or size > LEAF)
    assert {shape[0] for shape in operations.factorised} == {count}
    torch.testing.assert_close(found, torch.linalg.cholesky(matrix).inverse())


@pytest.mark.parametrize("fewest", [1, 2, 3])
def test_some_matrices_after_the_others(fewest, generator, monkeypatch):
    """An error counts those of all pieces."""
    matrix = positive_definite(generator, 5, 40, 40)
    whole = inverse_cholesky(matrix)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 0)
    monkeypatch.setattr(factor, "MIN_MATRICES", fewest)
    with Operations() as operations:
        torch.testing.assert_close(inverse_cholesky(matrix), whole, rtol=1e-13, atol=1e-13)
    assert {shape[0] for shape in operations.factorised} == {fewest, 5 % fewest or fewest}
    matrix[1, 3, 0] = matrix[4, 3, 0] = torch.nan
    with pytest.raises(FactorisationError, match="2 of 5 matrices hold NaN"):
        inverse_cholesky(matrix)


@BOTH
def test_gradients(factorise, generator):
    root = normal(generator, 2, 20, 20).requires_grad_()
    matrix = root @ root.mT + torch.eye(20)
    oracle = torch.linalg.cholesky(matrix)
    oracle = oracle if factorise is cholesky else oracle.inverse()
    assert_equal_with_gradients(factorise(matrix), oracle, [root], 1e-10)


@BOTH
@pytest.mark.parametrize("size", [4, 40])
def test_vmap_equals_batch(factorise, size, generator):
    matrix = positive_definite(generator, 3, 2, size, size)
    torch.testing.assert_close(torch.func.vmap(factorise)(matrix), factorise(matrix))
    torch.testing.assert_close(torch.func.vmap(factorise, in_dims=1, out_dims=1)(matrix), factorise(matrix))


@BOTH
@pytest.mark.parametrize("size", [4, 40])
def test_failures_are_named(factorise, size, generator):
    """Also under vmap, where an error may be NaN instead."""
    matrix = positive_definite(generator, 5, size, size)
    matrix[1, size - 1, 0] = torch.nan
    matrix[3, 1, 1] = torch.inf
    wanted = "the thing is not positive definite .*2 of 5 matrices hold NaN or infinite .*learning rate"
    with pytest.raises(FactorisationError, match=wanted):
        factorise(matrix, "the thing")
    matrix = torch.stack([positive_definite(generator, size, size), indefinite(generator, size)])
    wanted = r"values -5.00e-01 to 3.00e\+00, condition infinite, in torch.float64: hold it with care\)$"
    with pytest.raises(FactorisationError, match=wanted) as caught:
        factorise(matrix, "the thing", "hold it with care")
    assert caught.value.what == "the thing" and str(caught.value).startswith("the thing is not positive")
    try:
        factor = torch.func.vmap(factorise)(matrix)
    except FactorisationError:
        return
    assert torch.isfinite(factor[0]).all() and torch.isnan(factor[1]).any()


@BOTH
def test_a_variance_that_underflowed_is_not_taken_for_points_that_coincide(factorise):
    matrix = torch.full((3, 3), 1e-46, dtype=torch.float32)
    with pytest.raises(FactorisationError, match="is zero in torch.float32: a variance or a scale") as caught:
        factorise(matrix, "the covariance", "points that coincide")
    assert "coincide" not in str(caught.value)
    with pytest.raises(FactorisationError, match="eigenvalues -1.00e"):
        factorise(-torch.eye(3), "the covariance", "points that coincide")


def test_layers_are_named_from_the_outside_in_also_between_processes():
    error = FactorisationError("the posterior precision", "a cause").within("Linear(2 → 3)").within("layer 4")
    assert error.where == ("layer 4", "Linear(2 → 3)")
    wanted = "layer 4: Linear(2 → 3): the posterior precision is not positive definite (a cause)"
    copy = pickle.loads(pickle.dumps(error))
    assert vars(copy) == vars(error) and str(copy) == str(error) == wanted


@BOTH
@pytest.mark.parametrize("size", [4, 40])
def test_off_the_cpu_no_flag_is_read(factorise, size):
    """The meta device holds no data: reading a flag raises there, as it would wait on an accelerator."""
    factor = factorise(torch.empty(3, size, size, device="meta"))
    assert factor.shape == (3, size, size) and factor.device.type == "meta"
