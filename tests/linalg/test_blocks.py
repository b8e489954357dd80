"""Pieces of a batch: they cover it once, and on an accelerator there is only one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gilib.linalg import blocks
from gilib.linalg.blocks import at_once, pieces, piecewise


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
    """How many matrices the pieces hold."""
    sizes = []
    piecewise(lambda some: (sizes.append(len(some)) or some,), matrices)
    return sizes
