"""Cholesky factors and inverses, alone and together: values, gradients, cost, failures."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.linalg import (
    FactorisationError,
    blocks,
    cholesky,
    cholesky_and_inverse,
    factor,
    failures_as_nan,
    inverse_cholesky,
    triangular,
)
from gilib.linalg.factor import LEAF, leaf
from gilib.linalg.triangular import halves, inverse_of_lower, symmetric
from tests.support import seeded
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


USES = {
    "both": lambda factor, inverse: (factor, inverse),
    "their diagonals": lambda factor, inverse: (
        factor.diagonal(dim1=-2, dim2=-1).log() + inverse.diagonal(dim1=-2, dim2=-1)
    ),
}


@given(st.lists(st.integers(0, 3), max_size=3), st.integers(1, 40), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_both_are_those_of_torch(lead, size, seed):
    matrix = positive_definite(seeded(seed), *lead, size, size)
    factor, inverse = cholesky_and_inverse(matrix)
    torch.testing.assert_close(factor, torch.linalg.cholesky(matrix), rtol=0, atol=0)
    torch.testing.assert_close(inverse @ factor, torch.eye(size).expand_as(matrix), rtol=0, atol=1e-11)
    assert torch.equal(inverse, inverse.tril())


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("by_halves", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (9, 9), (2, 2, 3, 3)])
def test_gradients_by_finite_differences(use, by_halves, shape, generator, monkeypatch):
    least = 0 if by_halves else 10**9
    monkeypatch.setattr(triangular, "MIN_ENTRIES", least)
    monkeypatch.setattr(triangular, "MIN_ROWS", 0)
    root = normal(generator, *shape).requires_grad_()

    def call(root):
        return USES[use](*cholesky_and_inverse(root @ root.mT + torch.eye(shape[-1])))

    assert torch.autograd.gradcheck(call, root)
    assert torch.autograd.gradgradcheck(call, root)


@pytest.mark.parametrize("size", [83, 88, 100])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-11), (torch.float32, 2e-3)])
def test_gradients_by_halves_are_those_of_torch(size, dtype, tolerance, generator):
    """What only a part above the diagonal would change, too: nothing."""
    matrix = positive_definite(generator, 3, 2, size, size).requires_grad_()
    upstream = [normal(generator, 3, 2, size, size) for _ in range(2)]

    def gradient(function, matrix, upstream):
        return torch.autograd.grad(function(matrix), matrix, upstream)[0]

    def theirs(matrix):
        factor = torch.linalg.cholesky(matrix)
        identity = torch.eye(size).expand_as(factor)
        return factor, torch.linalg.solve_triangular(factor, identity, upper=False)

    expected = gradient(theirs, matrix, upstream)
    given = matrix.detach().to(dtype).requires_grad_()
    scale = tolerance * expected.abs().max().item()
    for parts in (upstream, [part.tril() for part in upstream]):
        ours = gradient(cholesky_and_inverse, given, [part.to(dtype) for part in parts])
        torch.testing.assert_close(ours.double(), expected, rtol=0, atol=scale)


def test_many_gradients_at_once_and_gradients_under_autocast(generator):
    """By torch's own batching, as `torch.autograd.functional.jacobian(vectorize=True)` asks for them."""
    matrix = positive_definite(generator, 5, 100, 100).requires_grad_()
    total = sum(cholesky_and_inverse(matrix))
    upstream = normal(generator, 2, 5, 100, 100)
    settings = {"is_grads_batched": True, "retain_graph": True}
    (both,) = torch.autograd.grad(total, matrix, upstream, **settings)
    for one, together in zip(upstream, both, strict=True):
        (alone,) = torch.autograd.grad(total, matrix, one, retain_graph=True)
        torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)
    matrix = matrix.detach().float().requires_grad_()
    (expected,) = torch.autograd.grad(sum(cholesky_and_inverse(matrix)).sum(), matrix)
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = torch.autograd.grad(sum(cholesky_and_inverse(matrix)).sum(), matrix)
    torch.testing.assert_close(found, expected)


def test_other_ways_to_differentiate_take_plain_products(generator):
    """Forward derivatives and transforms follow what torch knows."""
    matrix = positive_definite(generator, 5, 100, 100)
    direction = normal(generator, 5, 100, 100)
    direction = direction + direction.mT
    _, forward = torch.func.jvp(cholesky_and_inverse, (matrix,), (direction,))
    step = 1e-6 * direction
    sides = cholesky_and_inverse(matrix + step), cholesky_and_inverse(matrix - step)
    for part, ahead, behind in zip(forward, *sides, strict=True):
        torch.testing.assert_close(part, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-7)

    def total(matrix):
        return sum(part.sin().sum() for part in cholesky_and_inverse(matrix))

    each = torch.func.vmap(torch.func.grad(total))(matrix)
    wanted = matrix.clone().requires_grad_()
    torch.testing.assert_close(each, torch.autograd.grad(total(wanted), wanted)[0], rtol=0, atol=1e-10)


def test_dtypes_the_lower_triangle_and_failures(generator):
    """The dtype is kept; only the lower triangle is read; a failure is named or spoils its own results."""
    matrix = positive_definite(generator, 3, 4, 4)
    spoilt = torch.where(torch.ones(4, 4).triu(1).bool(), torch.nan, matrix)
    for ours, theirs in zip(cholesky_and_inverse(spoilt), cholesky_and_inverse(matrix), strict=True):
        assert torch.equal(ours, theirs)
    assert all(part.dtype == torch.float32 for part in cholesky_and_inverse(matrix.float()))
    matrix[1] -= 10.0 * torch.eye(4)
    with pytest.raises(FactorisationError, match="the kernel matrix is not positive definite .*eigenvalues"):
        cholesky_and_inverse(matrix, "the kernel matrix")
    with failures_as_nan():
        for part in cholesky_and_inverse(matrix):
            assert torch.isnan(part).flatten(1).any(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("size", [9, 16, 17, 40, 101])
def test_symmetric_equals_whole_products(size, generator):
    inverse, lower = (normal(generator, 3, size, size).tril() for _ in "jl")
    whole = inverse.mT @ lower @ inverse
    kept = inverse.clone(), lower.clone()
    found = symmetric(inverse, halves(lower))
    torch.testing.assert_close(found, 0.5 * (whole + whole.mT), rtol=1e-12, atol=1e-10)
    assert torch.equal(found, found.mT) and torch.equal(inverse, kept[0]) and torch.equal(lower, kept[1])


@pytest.mark.parametrize("size", [1, 9, 101, 260])
def test_the_inverse_of_a_triangle(size, generator):
    matrix = normal(generator, 2, size, size).tril() / size**0.5 + 2.0 * torch.eye(size)
    found = inverse_of_lower(matrix)
    torch.testing.assert_close(found @ matrix, torch.eye(size).expand(2, -1, -1), rtol=0.0, atol=1e-10)
    assert torch.equal(found, found.tril())
