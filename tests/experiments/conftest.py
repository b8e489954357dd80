"""Every test of experiments has results and a cache of its own, and knows the tiny experiment."""

import dataclasses

import pytest

from experiments.registry import EXPERIMENTS
from tests.experiments.tiny import TINY


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    """An empty results directory."""
    monkeypatch.setenv("GILIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(EXPERIMENTS, "tiny", TINY)
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


@pytest.fixture
def instead(monkeypatch):
    """Put a variant in the place of the tiny experiment: `instead(run=...)`, and `instead()` for itself."""
    return lambda **own: monkeypatch.setitem(EXPERIMENTS, "tiny", dataclasses.replace(TINY, **own))


@pytest.fixture
def kept(monkeypatch):
    """The results that come with the source."""
    monkeypatch.delenv("GILIB_RESULTS")
