"""What the benchmark times computes the same thing on all sides."""

import pytest

from tests.support.benchmarks import load


@pytest.fixture(scope="module")
def benchmark():
    return load("autocorrelation")


@pytest.mark.parametrize("size", [4, 9])
def test_moments_and_gradients_agree(benchmark, size):
    benchmark.check(size)
