"""Products of lower triangles by halves against whole ones."""

import pytest
import torch

from gilib.linalg.halves import halves, inverse_of_lower, symmetric
from tests.helpers import normal

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("size", [9, 16, 17, 40, 101])
def test_symmetric_equals_whole_products(size, generator):
    inverse, lower = (normal(generator, 3, size, size).tril() for _ in "jl")
    whole = inverse.mT @ lower @ inverse
    kept = inverse.clone(), lower.clone()
    found = symmetric(inverse, halves(lower))
    torch.testing.assert_close(found, 0.5 * (whole + whole.mT), rtol=1e-12, atol=1e-10)
    assert torch.equal(found, found.mT) and torch.equal(inverse, kept[0]) and torch.equal(lower, kept[1])


@pytest.mark.parametrize("size", [9, 16, 40])
def test_halves_are_views_of_all_that_is_not_zero(size):
    matrix = torch.zeros(2, size, size)
    for part in halves(matrix):
        part += 1.0
    assert torch.equal(matrix.tril(), torch.ones(2, size, size).tril())


@pytest.mark.parametrize("size", [1, 9, 101, 260])
def test_the_inverse_of_a_triangle(size, generator):
    matrix = normal(generator, 2, size, size).tril() / size**0.5 + 2.0 * torch.eye(size)
    found = inverse_of_lower(matrix)
    torch.testing.assert_close(found @ matrix, torch.eye(size).expand(2, -1, -1), rtol=0.0, atol=1e-10)
    assert torch.equal(found, found.tril())
