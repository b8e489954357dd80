"""Sums of layers, and the convolutional architectures."""

import pytest
from torch import nn

import gilib
from gilib.layers import Conv2d, InducingBatchNorm, Linear
from gilib.models import lenet, resnet8, resnet18
from tests.support import D, assert_equal, normals, seeded

SMALL = dict(generator=seeded(), dtype=D)


def described(net):
    return [layer.describe() for layer in net.layers]


def weight_layers(module):
    return [part for part in module.modules() if isinstance(part, Conv2d | Linear)]


def test_lenet():
    net = lenet((1, 12, 12), channels=4, inducing_points=normals(3, 1, 12, 12), **SMALL)
    conv = "Conv2d(4 → 4, 3 × 3)"
    assert described(net) == [
        *("Conv2d(1 → 4, 3 × 3)", "ReLU", "MaxPool2d", conv, "ReLU", "MaxPool2d", conv, "ReLU", "Flatten"),
        "Linear(36 → 10)",
    ]
    assert net.draw(2)(normals(5, 1, 12, 12)).shape == (2, 5, 10)


def test_resnet8_is_what_it_says():
    """Against torch's functions with the weights drawn."""
    net = resnet8((3, 8, 8), 4, channels=5, inducing_points=normals(3, 3, 8, 8), **SMALL)
    draw, x = net.draw(1, generator=seeded(1)), normals(6, 3, 8, 8, seed=2)
    functions = draw.function.functions

    def conv(function, value):
        kernel = function.weights[0].mT.reshape(5, -1, 3, 3)
        return nn.functional.relu(nn.functional.conv2d(value, kernel, padding=1))

    value = conv(functions[0], x)
    for k, block in enumerate(functions[index] for index in (2, 4, 6)):
        branch = block.branch.functions
        value = value + conv(branch[2], conv(branch[0], value))
        value = nn.functional.avg_pool2d(value, 2) if k < 2 else value.mean((-2, -1))
    weights = functions[-1].weights[0]
    assert_equal(draw(x)[0].detach(), (value @ weights[:-1] + weights[-1]).detach(), 1e-10)
    assert len(weight_layers(net)) == 8


@pytest.mark.parametrize(("widths", "batch_norm"), [((2, 2, 2, 2), False), ((2, 3, 2, 3), True)])
def test_resnet18(widths, batch_norm):
    """It halves images by the stage, not by the width."""
    points = normals(3, 3, 16, 16) if batch_norm else None
    posterior = (gilib.Factorised(), gilib.GlobalInducing()) if batch_norm else gilib.Factorised()
    settings = {"posterior": posterior, "batch_norm": batch_norm, "inducing_points": points, **SMALL}
    net = resnet18((3, 16, 16), 4, widths=widths, **settings)
    layers = weight_layers(net)
    assert len(layers) == 21 and len({layer.posterior.short_name for layer in layers}) == 1 + batch_norm
    norms = [part for part in net.modules() if isinstance(part, InducingBatchNorm)]
    assert len(norms) == (20 if batch_norm else 0)
    draw, x = net.draw(2, generator=seeded(1)), normals(5, 3, 16, 16)
    steps = [step for step in gilib.record(draw, x).drawn if hasattr(step.function, "weights")]
    assert [step.output.shape[-1] for step in steps] == [16] * 5 + [8] * 5 + [4] * 5 + [2] * 5 + [4]
    (draw(x).square().mean() + draw.log_pq.sum()).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_settings_reach_every_layer():
    net = resnet8(
        (3, 8, 8), 4, channels=2, boundary="exact", prior=gilib.ScalePrior(), posterior=gilib.FromPrior()
    )
    layers = weight_layers(net)
    assert {layer.boundary for layer in layers[:-1]} == {"exact"}
    assert {type(layer.prior) for layer in layers} == {gilib.ScalePrior}


def test_inducing_images_of_another_shape():
    with pytest.raises(ValueError, match=r"inducing_points must be images of shape \[1, 28, 28\]"):
        lenet(inducing_points=normals(3, 1, 8, 8))
