"""The cost of a step, counted; and trainings with integrated or sampled inducing outputs."""

import dataclasses
import math

import pytest
import torch

from experiments.lindinger2020 import convergence, networks, runtime, tasks
from experiments.lindinger2020.convergence import ConvergenceConfig
from experiments.lindinger2020.costs import operations
from experiments.lindinger2020.runtime import FAMILIES, RuntimeConfig
from gilib import projection
from gilib.structured import FullyCoupled, Pattern, StructuredGP
from tests.experiments.recorded import JOB
from tests.support.oracles import Operations


def counted(method, depth=3, width=5):
    """Operations of a step at points, and of the covariance's blocks."""
    pattern = Pattern(FAMILIES[method], (width,) * (depth - 1) + (1,), (8,) * depth)
    return operations(pattern, 100, 5)


@pytest.mark.parametrize(
    ("method", "field", "points", "blocks"),
    [
        ("mf", "width", 1, 1),
        ("star", "width", 1, 1),
        ("fc", "width", 2, 3),
        ("mf", "depth", 1, 1),
        ("star", "depth", 2, 3),
        ("fc", "depth", 2, 3),
    ],
)
def test_operations_grow_as_the_paper_says(method, field, points, blocks):
    """O(N M² τL) for mean field, O(N M² τL² + M³ τL³) for stripes and arrow, O(N M² τ²L² + M³ τ³L³)."""
    few, many = (counted(method, **{field: value}) for value in (12, 24))
    assert math.log2(many.points / few.points) == pytest.approx(points, abs=0.25)
    assert math.log2(many.blocks / few.blocks) == pytest.approx(blocks, abs=0.25)


@pytest.mark.parametrize("method", FAMILIES)
def test_the_count_is_that_of_the_products_that_are_run(method, monkeypatch):
    """For large samples; within a tenth: beside them are means, and factors of the kernel matrices."""
    monkeypatch.setattr(projection, "MIN_PRODUCTS", 0)
    config = RuntimeConfig("x", num_inducing=64, batch_size=256, num_samples=3)
    step = runtime.stepper(runtime.network(method, config), config)
    step()
    with Operations() as counted:
        step()
    assert counted.products[torch.float32] == pytest.approx(runtime.work(method, config), rel=0.1)


def test_pairs_differ_in_the_estimator_and_at_paper_scale_in_steps():
    known = {"reduced": {(True, 150), (False, 150)}, "paper": {(True, 750), (False, 1500)}}
    for scale, steps in known.items():
        grid = list(convergence.grid(scale))
        assert len(grid) == 6 and {(c.marginalise, c.steps) for c in grid} == steps
        same = {dataclasses.replace(c, marginalise=True, steps=1) for c in grid}
        assert len(same) == 3 == len({c.seed for c in same})


@pytest.mark.parametrize("marginalise", [True, False])
def test_all_points_at_every_step_and_the_curve_is_theirs(marginalise, monkeypatch):
    seen = {}
    fit = convergence.uci_run.gilib.fit

    def watched(net, likelihood, x, y, **settings):
        seen.update(settings, points=len(x), net=net)
        seen["history"] = fit(net, likelihood, x, y, **settings)
        return seen["history"]

    monkeypatch.setattr(convergence.uci_run.gilib, "fit", watched)
    config = ConvergenceConfig(marginalise, 0, num_inducing=6, steps=5)
    record = convergence.run(config, JOB)
    assert seen["batch_size"] == seen["points"] == 927 and not seen["callbacks"]
    (layer,) = (module for module in seen["net"].modules() if isinstance(module, StructuredGP))
    assert layer.marginalise == marginalise and layer.family == FullyCoupled()
    assert record["curve"] == pytest.approx(seen["history"].elbo.tolist(), rel=1e-5)
    assert record["metrics"]["curve_every"] == 1 and record["metrics"]["estimate_sd"] > 0
    assert seen["rule"].schedule(4, 5) == 1.0


def test_both_start_at_the_same_network():
    task = tasks.load("concrete", "interpolation", 0, 0.0)
    one = convergence._training(ConvergenceConfig(True, 0, num_inducing=6), len(task.x))
    first, second = (networks.structured(one, task, marginalise)[0] for marginalise in (True, False))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
