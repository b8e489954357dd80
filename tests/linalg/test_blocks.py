"""Pieces of a batch: they cover it once, and on an accelerator there is only one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gilib.linalg import blocks
from gilib.linalg.blocks import at_once, matrix_pieces, pieces


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
    assert next(matrix_pieces(matrices)) == slice(0, expected // 2)  # room for two temporaries


def test_a_piece_holds_one_item_at_least(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 0)
    assert at_once(torch.empty(0), 100) == 1


def test_off_the_cpu_all_is_done_at_once():
    matrices = torch.empty(10**6, 100, 100, device="meta")
    assert list(matrix_pieces(matrices)) == [slice(0, 10**6)]
