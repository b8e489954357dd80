"""Shared by the tests of gilib.data: a data folder of one's own."""

from pathlib import Path

import pytest


@pytest.fixture
def empty_directory(tmp_path, monkeypatch) -> Path:
    """An empty data directory, with an empty user cache beside it."""
    monkeypatch.setenv("GILIB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "data"
