"""Shared by the tests of gilib.data: where the published files lie, and a data folder of one's own."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder ``uci`` with the publishers' files, index files included."""
    chosen = os.environ.get("GILIB_DATA")
    if not chosen:
        pytest.skip("GILIB_DATA is not set: the published index files do not ship with gilib")
    return Path(chosen) / "uci"


@pytest.fixture
def empty_directory(tmp_path, monkeypatch) -> Path:
    """An empty data directory, with an empty user cache beside it."""
    monkeypatch.setenv("GILIB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "data"
