"""Functions of layers that come first say what they take: no single point, no other width."""

import pytest
import torch

import gilib
from gilib.layers import FixedLinear, InducingBatchNorm
from tests.support import seeded

POINTS, IMAGES = torch.randn(6, 4, generator=seeded(0)), torch.randn(6, 2, 5, 5, generator=seeded(1))
DROPPED = gilib.posteriors.Dropout(0.5)


def network(layers, inducing):
    return gilib.Network(inducing, layers, input_shape=tuple(inducing.shape[1:]), generator=seeded(2))


def drawn(name):
    """A function, and an input that it takes."""
    if name == "images":
        net = network([InducingBatchNorm(), gilib.Conv2d(2, 3, 3, gilib.GlobalInducing())], IMAGES)
        return net.draw(2).function, IMAGES
    if name == "dropout":
        net = gilib.models.mlp(4, (3,), 1, posterior=DROPPED)
        return net.estimate(2, 6).function, POINTS
    first = {"batch norm": InducingBatchNorm(), "fixed": FixedLinear(4, 4, torch.eye(4))}[name]
    return network([first, gilib.Linear(4, 1, gilib.GlobalInducing())], POINTS).draw(2).function, POINTS


@pytest.mark.parametrize("name", ["batch norm", "images", "fixed", "dropout"])
def test_a_single_point_and_another_width_are_refused(name):
    function, x = drawn(name)
    assert function(x).shape[:2] == (2, 6)
    broken = [x[0], torch.cat([x, x], 1)] + ([] if name == "dropout" else [x[:, :1]])
    for wrong in broken:
        with pytest.raises(ValueError, match=r"points.*got \["):
            function(wrong)
