"""Points of another dtype than a drawn function's are refused in words, by every kind of layer."""

import pytest
import torch
from torch import nn

import gilib
from gilib.layers import FixedLinear, Sum
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
