"""Processors on which large products go to oneDNN, pretended."""

from types import SimpleNamespace

import pytest
import torch

from gilib.linalg import onednn

has_onednn = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this torch has no oneDNN",
)


def here(monkeypatch, maker="AuthenticAMD", family=26, capability="AVX512", mkl=True):
    """As if this were such a processor, with torch built in such a way."""
    said = f"processor\t: 0\nvendor_id\t: {maker}\ncpu family\t: {family}\nmodel\t: 2\n"
    file = SimpleNamespace(exists=lambda: True, read_text=lambda **_: said)
    monkeypatch.setattr(onednn, "CPUINFO", file)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    onednn.runs_at_half_width.cache_clear()
