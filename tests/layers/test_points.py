"""Points that do not fit a drawn function, in dtype or shape, are refused in words, by all layers."""

import pytest
import torch
from torch import nn

import gilib
from gilib.layers import FixedLinear, InducingBatchNorm, Sum
from gilib.structured import MeanField
from tests.support import normals, seeded

Z, IMAGES = normals(6, 2).float(), normals(6, 2, 4, 4).float()


def network(*layers, inducing=Z):
    return gilib.Network(inducing, layers, input_shape=tuple(inducing.shape[1:]), generator=seeded(2))


NETWORKS = {
    "weights": lambda: gilib.models.mlp(2, (3,), 1, inducing_points=Z),
    "factorised weights": lambda: gilib.models.mlp(2, (3,), 1, posterior=gilib.Factorised()),
    "dropout": lambda: gilib.models.mlp(2, (3,), 1, posterior=gilib.posteriors.Dropout(0.5)),
    "a convolution": lambda: network(gilib.Conv2d(2, 2, 3), nn.Flatten(-3), inducing=IMAGES),
    "normalised images": lambda: network(InducingBatchNorm(), gilib.Conv2d(2, 2, 3), inducing=IMAGES),
    "normalised points": lambda: network(InducingBatchNorm(), gilib.Linear(2, 1)),
    "a process": lambda: gilib.models.sparse_gp(2, 1, inducing_points=Z),
    "a process with a fixed linear mean": lambda: network(
        Sum([gilib.GP(2, 1), FixedLinear(2, 1, torch.ones(2, 1))])
    ),
    "a fixed linear map": lambda: network(FixedLinear(2, 1, torch.ones(2, 1)), gilib.GP(1, 1)),
    "structured processes": lambda: gilib.models.structured_gp(
        2, 1, 2, width=2, inducing_points=Z, family=MeanField()
    ),
}


@pytest.mark.parametrize("face", ["draw", "estimate", "joint_draw"])
@pytest.mark.parametrize("name", NETWORKS)
def test_points_of_another_dtype_or_shape(name, face):
    net = NETWORKS[name]()
    x = IMAGES if len(net.input_shape) == 3 else Z
    points = () if face == "draw" else (len(x),)
    drawn = getattr(net, face)(2, *points, generator=seeded())
    assert drawn(x).dtype == torch.float32
    for evaluated in (drawn, drawn.marginals):
        with pytest.raises(ValueError, match="x has dtype torch.float64 but the network has torch.float32"):
            evaluated(x.double())
    for wrong in (x[0], torch.cat([x, x], 1), x[:, :1]):
        with pytest.raises(ValueError, match=r"(points|images|channels).*got \["):
            drawn.function(wrong)


def test_points_of_another_dtype_within_autocast():
    """It is left for what is drawn, and does not convert them."""
    net = gilib.models.mlp(2, (3,), 1, inducing_points=Z)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="x has dtype torch.bfloat16"):
        net.draw(2, generator=seeded())(Z.bfloat16())
