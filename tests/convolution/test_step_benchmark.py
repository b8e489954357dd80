"""What the benchmark of a step of ResNet-8 times is the same in all ways, and its counts are right."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import gilib
from gilib import statistics
from tests.support import assert_equal, normals
from tests.support.benchmarks import load

CPU = torch.device("cpu")
PLAIN = ("convolution", "patches")


@pytest.fixture(scope="module")
def benchmark():
    return load("resnet_step")


@pytest.mark.parametrize("prior", ["ScalePrior", "SpatialIWPrior"])
def test_bounds_and_gradients_agree(benchmark, prior):
    benchmark.check(prior, CPU)


def test_the_check_sees_a_way_that_is_wrong(benchmark, monkeypatch):
    right = benchmark.WAYS["convolution"]

    def wrong(*parts):
        gram, cross = right(*parts)
        return gram, 1.001 * cross

    monkeypatch.setitem(benchmark.WAYS, "convolution", wrong)
    with pytest.raises(AssertionError, match="convolution, ScalePrior: relative difference"):
        benchmark.check("ScalePrior", CPU, count=2, size=8)


def test_the_check_covers_the_routes_of_gilib_that_are_timed(benchmark):
    net, _, _ = benchmark.Problem.of("ScalePrior", 8, 16, torch.float64, CPU)
    layers = [part for part in net.modules() if isinstance(part, gilib.Conv2d)]
    assert {benchmark.layer_route(layer) for layer in layers} == {"patches", "convolution"}


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


@pytest.mark.parametrize("way", PLAIN)
def test_plain_ways_see_samples_and_weights(benchmark, way):
    """x [S, M, C, H, W], y [M, O, H, W]: each sample as gilib has it."""
    x, y, precision = normals(2, 3, 4, 5, 5), normals(3, 6, 5, 5, seed=1), normals(3, seed=2).exp()
    windows = benchmark.Windows.of(3)
    found = benchmark.WAYS[way](x, y, windows, precision)
    for s in range(2):
        wanted = benchmark.window_moments(x[s], y, windows, precision)
        for ours, theirs in zip(found, wanted, strict=True):
            assert_equal(ours[s], theirs, 1e-11)


@pytest.mark.parametrize("way", PLAIN)
def test_plain_ways_refuse_other_windows(benchmark, way):
    x, windows = normals(3, 4, 5, 5), benchmark.Windows.of(3, boundary="zero")
    with pytest.raises(AssertionError, match="circular windows of 3 x 3 pixels only"):
        benchmark.WAYS[way](x, x, windows, normals(3).exp())


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


def test_parts_and_memory_of_a_step(benchmark):
    problem = benchmark.Problem.of("ScalePrior", 2, 8, torch.float32, CPU)
    step = problem.stepper()
    parts = benchmark.parts(step, CPU)
    assert list(parts) == [*benchmark.PARTS, "rest"]
    assert all(value > 0 for value in parts.values())
    activations = 2 * 32 * 8 * 8 * 4  # bytes of 32 channels of the data images
    assert benchmark.peak_memory(step, CPU)[0] > 2 * activations
