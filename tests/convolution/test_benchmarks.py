"""What the benchmarks of convolutions time is the same in all ways, and their counts are right."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import gilib
from gilib import statistics
from tests.support.benchmarks import load

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def benchmark():
    return load("resnet_step")


@pytest.mark.parametrize("size", [4, 9])
def test_moments_and_gradients_of_the_other_benchmark_agree(size):
    load("autocorrelation").check(size)


def test_bounds_and_gradients_agree(benchmark):
    benchmark.check("SpatialIWPrior", CPU)


def test_every_convolution_takes_the_moments_that_are_put_in_place(benchmark, monkeypatch):
    seen, before = [], statistics.window_moments

    def moments(images, *rest):
        seen.append(tuple(images.shape[-3:]))
        return before(images, *rest)

    monkeypatch.setitem(benchmark.WAYS, "patches", moments)
    problem = benchmark.Problem.of("ScalePrior", 8, 16, torch.float32, CPU)
    noise = problem.net.base_noise(1)
    with pytest.raises(KeyboardInterrupt), benchmark.moments_by("patches"):
        problem.bound(noise)
        raise KeyboardInterrupt
    assert seen == [(3, 16, 16), *[(32, n, n) for n in (16, 16, 8, 8, 4, 4)]]
    problem.bound(noise)
    assert len(seen) == 7 and statistics.window_moments is before


def test_operations_of_convolutions_are_those_that_torch_counts(benchmark):
    """Of a network without residual blocks, where inducing images pass every layer once."""
    images = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    layers = [gilib.Conv2d(3, 4, 3), nn.ReLU(), gilib.Conv2d(4, 5, 3), nn.Flatten(), gilib.Linear(320, 10)]
    net = gilib.Network(images, layers)
    problem = benchmark.Problem(net, images.clone(), torch.arange(6))
    step = problem.stepper()
    with FlopCounterMode(display=False) as counter:
        step()
    counted = {str(kind): value for kind, value in counter.get_flop_counts()["Global"].items()}
    wanted = counted["aten.convolution"] + counted["aten.convolution_backward"]
    assert benchmark.operations(problem)["convolutions"] == pytest.approx(wanted / 1e9)
