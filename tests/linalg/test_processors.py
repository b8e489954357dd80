"""Which processors torch's own products use by halves."""

import pytest
import torch

from gilib.linalg import products
from tests.onednn import has_onednn, here


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\n", ("AuthenticAMD", 26)),
        ("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n", ("GenuineIntel", 6)),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", ("", 0)),
    ],
)
def test_who_made_the_processor(monkeypatch, tmp_path, text, found):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    monkeypatch.setattr(products, "CPUINFO", path)
    assert products.processor() == found


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("AMD64 Family 25 Model 33 Stepping 2, AuthenticAMD", ("AuthenticAMD", 25)),
        ("arm", ("arm", 0)),
        ("", ("", 0)),
    ],
)
def test_who_made_it_where_there_is_no_such_file(monkeypatch, tmp_path, said, found):
    monkeypatch.setattr(products, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr(products.platform, "processor", lambda: said)
    assert products.processor() == found


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
    assert products.runs_at_half_width.__wrapped__() is half


def test_a_torch_without_the_operation_does_without(monkeypatch):
    here(monkeypatch)
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert products.runs_at_half_width.__wrapped__() is False
    products.runs_at_half_width.cache_clear()
