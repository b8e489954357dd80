"""What the benchmark times computes the same thing on all sides."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def benchmark():
    folder = Path(__file__).parents[2] / "benchmarks"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)  # a script sees its neighbours
        spec = importlib.util.spec_from_file_location(
            "autocorrelation_benchmark", folder / "autocorrelation.py"
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("size", [4, 9])
def test_moments_and_gradients_agree(benchmark, size):
    benchmark.check(size)
