"""Results directories of the tests of the report."""

import pytest

from experiments import report
from tests.experiments.report.reporting import look_here


@pytest.fixture(scope="session")
def committed():
    """Every comparison with what the repository records, made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GILIB_RESULTS", raising=False)
        return report.comparisons()


@pytest.fixture
def papers(results, monkeypatch):
    """An empty results directory that may hold printed tables."""
    return look_here(results, monkeypatch)
