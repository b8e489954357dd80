"""Which processors torch's own products use by halves."""

import pytest
import torch

from gilib.linalg import onednn
from tests.support.onednn import has_onednn, here


@has_onednn
@pytest.mark.parametrize(
    ("change", "half"),
    [
        ({}, True),
        ({"maker": "GenuineIntel"}, False),
        ({"maker": ""}, False),
        ({"family": 25}, False),  # computes with 256 bits at once
        ({"capability": "AVX2"}, False),
        ({"mkl": False}, False),
    ],
)
def test_which_processors_run_at_half_width(monkeypatch, change, half):
    here(monkeypatch, **change)
    assert onednn.runs_at_half_width.__wrapped__() is half


def test_a_torch_without_the_operation_does_without(monkeypatch):
    here(monkeypatch)
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert onednn.runs_at_half_width.__wrapped__() is False
    onednn.runs_at_half_width.cache_clear()


def test_where_nothing_says_what_the_processor_is(monkeypatch, tmp_path):
    here(monkeypatch)
    monkeypatch.setattr(onednn, "CPUINFO", tmp_path / "none")
    assert onednn.runs_at_half_width.__wrapped__() is False
    onednn.runs_at_half_width.cache_clear()
