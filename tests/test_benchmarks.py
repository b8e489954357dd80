"""What the benchmark times computes the same thing on both sides."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def benchmark():
    path = Path(__file__).parents[1] / "benchmarks" / "training_step.py"
    spec = importlib.util.spec_from_file_location("training_step", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bounds_and_gradients_agree_with_the_plain_computation(benchmark):
    benchmark.check("toy")
