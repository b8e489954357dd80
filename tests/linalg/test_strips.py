"""Triangles in strips multiply as whole ones do."""

import pytest
import torch

from gilib.linalg.strips import ROWS, Strips
from tests.support import D, assert_equal, normals


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("size", [1, 5, ROWS, ROWS + 1, 2 * ROWS + 57])
@pytest.mark.parametrize(("own", "lead"), [((), ()), ((2,), (2,)), ((2,), (3, 2)), ((), (3,))])
def test_products_with_one_triangle(own, lead, size, upper):
    """What stands in the other one is not read."""
    matrix, values = normals(*own, size, size, seed=1), normals(*lead, size, 3, seed=2)
    whole = matrix.triu() if upper else matrix.tril()
    other = torch.full((size, size), torch.nan, dtype=D)
    spoiled = matrix + (other.tril(-1) if upper else other.triu(1)).nan_to_num(nan=7.0)
    strips = Strips(spoiled, upper)
    assert_equal(strips @ values, whole @ values, 1e-11)
    assert len(strips.parts) == -(-size // ROWS) and all(part.is_contiguous() for _, part in strips.parts)


def test_strips_keep_nothing_of_the_matrix():
    matrix = normals(3, 3)
    strips, before = Strips(matrix, upper=False), matrix.tril()
    matrix.zero_()
    assert_equal(strips @ torch.eye(3, dtype=D), before, 0.0)
