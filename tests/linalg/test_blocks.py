"""Pieces of a batch, products for all of it, and its samples one by one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gilib.linalg import blocks
from gilib.linalg.blocks import at_once, pieces, piecewise
from gilib.linalg.columns import Columns
from gilib.linalg.samples import samples
from tests.support.oracles import normal


@given(st.integers(0, 50), st.integers(1, 60))
def test_pieces_cover_everything_once_in_order(count, step):
    found = [list(range(count))[piece] for piece in pieces(count, step)]
    assert sum(found, []) == list(range(count))
    assert all(len(piece) == step for piece in found[:-1])


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, 8), (torch.float64, 4)])
def test_a_piece_is_measured_in_bytes(dtype, expected, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8 * 4 * 9)
    matrices = torch.empty(20, 3, 3, dtype=dtype)
    assert at_once(matrices, 9) == expected
    assert sizes_of_pieces(matrices)[0] == expected // 2  # room for two temporaries


def test_off_the_cpu_all_is_done_at_once():
    assert sizes_of_pieces(torch.empty(10**6, 100, 100, device="meta")) == [10**6]


@pytest.mark.parametrize("room", [0, 8 * 2 * 9 * 3, 10**6])
def test_results_of_pieces_are_those_of_all_at_once(room, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", room)
    matrices, columns = torch.randn(7, 3, 3).double(), torch.randn(7, 3, 2).double()

    def function(some, other):
        return some @ other, some.mT, other.sum((1, 2))

    found = piecewise(function, matrices, columns)
    for ours, expected in zip(found, function(matrices, columns), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-14, atol=1e-14)


def sizes_of_pieces(matrices):
    sizes = []
    piecewise(lambda some: (sizes.append(len(some)) or some,), matrices)
    return sizes


pytestmark = pytest.mark.usefixtures("float64")

# leading axes of the matrices, and of the right-hand sides
CASES = {
    "all their own": ((3, 2), (3, 2)),
    "shared by samples": ((2,), (3, 2)),
    "shared by replicas": ((3, 1, 4), (3, 2, 4)),
    "shared by samples, then by replicas": ((1, 4), (3, 2, 4)),
    "axes of one": ((1, 2), (1, 2)),
}


@pytest.mark.parametrize(("own", "lead"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("count", [1, 3])
def test_one_product_for_all_equals_products_one_by_one(own, lead, count, generator):
    matrices, values = normal(generator, *own, 5, 5), normal(generator, *lead, 5, count)
    columns = Columns(own, lead)
    products = matrices.flatten(0, -3) @ columns.merge(values)
    torch.testing.assert_close(columns.split(products, count), matrices @ values, rtol=1e-13, atol=1e-13)


def test_every_sample_once_and_what_they_share_each_time():
    """No leading axes are one sample."""
    own, shared = torch.arange(12.0).reshape(2, 3, 2), torch.arange(3.0)[:, None]
    found = [(a.tolist(), b.tolist(), c) for a, b, c in samples((2, 3), own, shared, None, axes=1)]
    assert found == [(own[i, j].tolist(), [float(j)], None) for i in range(2) for j in range(3)]
    (pair,) = samples((), torch.eye(2), torch.ones(3, 1))
    assert torch.equal(pair[0], torch.eye(2)) and torch.equal(pair[1], torch.ones(3, 1))


def test_what_is_added_to_a_view_is_added_to_the_tensor():
    total, each = torch.zeros(3, 1), torch.zeros(2, 3, 1)
    for a, b in samples((2, 3), total, each, axes=1):
        a.add_(1.0)
        b.add_(1.0)
    assert total.flatten().tolist() == [2.0, 2.0, 2.0] and torch.equal(each, torch.ones(2, 3, 1))
