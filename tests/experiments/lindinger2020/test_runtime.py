"""The cost of a step: what is counted, by theory's slopes, and what a record holds."""

import math

import pytest
import torch

from experiments.lindinger2020 import runtime
from experiments.lindinger2020.costs import operations
from experiments.lindinger2020.runtime import FAMILIES, RuntimeConfig
from gilib import projection
from gilib.structured import Pattern
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
