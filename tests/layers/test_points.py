"""Points that do not fit a drawn function, in dtype or shape, are refused in words, by all layers."""

import pytest
import torch
from torch import nn

import gilib
from gilib.layers import FixedLinear, InducingBatchNorm, Sum
from gilib.structured import MeanField
from tests.support import normals, seeded

Z, IMAGES = normals(6, 2).float(), normals(6, 1, 4, 4).float()
NETWORKS = {
    "weights": lambda: gilib.models.mlp(2, (3,), 1, inducing_points=Z),
    "factorised weights": lambda: gilib.models.mlp(2, (3,), 1, posterior=gilib.Factorised()),
    "a convolution": lambda: gilib.Network(IMAGES, [gilib.Conv2d(1, 2, 3), nn.Flatten(-3)]),
    "a process": lambda: gilib.models.sparse_gp(2, 1, inducing_points=Z),
    "a process with a fixed linear mean": lambda: gilib.Network(
        Z, [Sum([gilib.GP(2, 1), FixedLinear(2, 1, torch.ones(2, 1))])]
    ),
    "a fixed linear map": lambda: gilib.Network(Z, [FixedLinear(2, 1, torch.ones(2, 1)), gilib.GP(1, 1)]),
    "structured processes": lambda: gilib.models.structured_gp(
        2, 1, 2, width=2, inducing_points=Z, family=MeanField()
    ),
}


@pytest.mark.parametrize("face", ["draw", "estimate", "joint_draw"])
@pytest.mark.parametrize("name", NETWORKS)
def test_points_of_another_dtype(name, face):
    net = NETWORKS[name]()
    x = IMAGES if name == "a convolution" else Z
    points = () if face == "draw" else (len(x),)
    drawn = getattr(net, face)(2, *points, generator=seeded())
    assert drawn(x).dtype == torch.float32
    with pytest.raises(ValueError, match="x has dtype torch.float64 but the network has torch.float32.*x.to"):
        drawn(x.double())
    with pytest.raises(ValueError, match="x has dtype torch.float64 but the network has torch.float32.*x.to"):
        drawn.marginals(x.double())


def test_points_of_another_dtype_within_autocast():
    """It is left for what is drawn, and does not convert them."""
    net = gilib.models.mlp(2, (3,), 1, inducing_points=Z)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="x has dtype torch.bfloat16"):
        net.draw(2, generator=seeded())(Z.bfloat16())


POINTS, PICTURES = torch.randn(6, 4, generator=seeded(0)), torch.randn(6, 2, 5, 5, generator=seeded(1))


def network(layers, inducing):
    return gilib.Network(inducing, layers, input_shape=tuple(inducing.shape[1:]), generator=seeded(2))


def drawn(name):
    """A function, and an input that it takes."""
    if name == "images":
        net = network([InducingBatchNorm(), gilib.Conv2d(2, 3, 3, gilib.GlobalInducing())], PICTURES)
        return net.draw(2).function, PICTURES
    if name == "dropout":
        net = gilib.models.mlp(4, (3,), 1, posterior=gilib.posteriors.Dropout(0.5))
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
