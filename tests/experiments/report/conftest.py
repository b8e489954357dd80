"""Results directories of the tests of the report."""

import pytest

from tests.experiments.report.reporting import look_here


@pytest.fixture
def papers(results, monkeypatch):
    """An empty results directory that may hold printed tables."""
    return look_here(results, monkeypatch)
