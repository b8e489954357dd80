"""Shared by all tests: one thread, a seeded generator, and float64 for the modules that ask for it."""

import pytest
import torch


def pytest_runtest_setup(item):
    """Leave out what is marked `gpu` where there is none."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a GPU")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Keep torch on one thread, so that tests running side by side do not slow each other down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def alike():
    """Every test begins alike, whatever ran before: with one global seed, and distributions that check."""
    torch.manual_seed(0)
    torch.distributions.Distribution.set_default_validate_args(True)


@pytest.fixture(scope="module")
def float64():
    """Make float64 the default for one module: `pytestmark = pytest.mark.usefixtures("float64")`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield torch.float64
    torch.set_default_dtype(before)


@pytest.fixture
def generator():
    """A source of random numbers that is the same in every test."""
    return torch.Generator().manual_seed(20210)


@pytest.fixture
def empty_directory(tmp_path, monkeypatch):
    """An empty data directory, with an empty user cache beside it."""
    monkeypatch.setenv("GILIB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "data"
