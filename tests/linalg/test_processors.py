"""Which processors torch's own products use by halves."""

from pathlib import Path

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


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [(torch.ops, "mkldnn", object()), (onednn, "CPUINFO", Path("/nowhere"))],
    ids=["a torch without the operation", "nothing says what the processor is"],
)
def test_where_something_is_missing(monkeypatch, where, name, value):
    here(monkeypatch)
    monkeypatch.setattr(where, name, value)
    assert onednn.runs_at_half_width.__wrapped__() is False
    onednn.runs_at_half_width.cache_clear()
