"""Points that do not fit a drawn function, in dtype or shape, are refused in words, by all layers."""

import pytest
import torch

import gilib
from gilib.layers import FixedLinear, InducingBatchNorm
from tests.layers.test_pinned import IMAGES, NETWORKS, X, network
from tests.support import seeded

# modules of others, and joint draws at inducing points and others together
LEFT_OUT = ("pretrained", "process below", "structured below")
EVERY = {
    "normalised images": lambda: network(InducingBatchNorm(), gilib.Conv2d(2, 2, 3), inducing_points=IMAGES),
    "normalised points": lambda: network(InducingBatchNorm(), gilib.Linear(2, 1)),
    "a fixed linear map": lambda: network(FixedLinear(2, 1, torch.ones(2, 1)), gilib.GP(1, 1)),
    **{name: NETWORKS[name] for name in NETWORKS if not name.startswith(LEFT_OUT)},
}


@pytest.mark.parametrize("face", ["draw", "estimate", "joint_draw"])
@pytest.mark.parametrize("name", EVERY)
def test_points_of_another_dtype_or_shape(name, face):
    net = EVERY[name]().float()
    x = (IMAGES if len(net.input_shape) == 3 else X).float()
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
    net = NETWORKS["factorised"]().float()
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="x has dtype torch.bfloat16"):
        net.draw(2, generator=seeded())(X.bfloat16())
