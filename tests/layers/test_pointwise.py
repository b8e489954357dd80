"""A plain module is a layer: the same as applying it to every sample by itself."""

import pytest
import torch
from torch import nn

import gilib
from gilib.layers import Pointwise
from gilib.posteriors import BuildContext
from tests.support import D, normals

MODULES = {
    "flatten": nn.Flatten(),
    "max": nn.MaxPool2d(2),
    "average": nn.AvgPool2d(2, stride=1),
    "adaptive": nn.AdaptiveAvgPool2d(1),
    "pad": nn.ZeroPad2d(1),
    "relu": nn.ReLU(),
    "chain": nn.Sequential(nn.MaxPool2d(2), nn.Tanh(), nn.Flatten()),
}


def built(module, shape=(2, 4, 6)):
    layer = Pointwise(module)
    return layer, layer.build(shape, BuildContext(dtype=D))


@pytest.mark.parametrize("lead", [(), (3,), (3, 2)], ids=["N", "SN", "SRN"])
@pytest.mark.parametrize("name", MODULES)
def test_images_against_a_loop_over_samples(name, lead):
    layer, shape = built(MODULES[name])
    images = normals(*lead, 5, 2, 4, 6)
    output = layer.draw()(images)
    assert output.shape == (*lead, 5, *shape)
    alone = torch.cat([MODULES[name](image[None]) for image in images.flatten(0, -4)])
    assert torch.equal(output.flatten(0, len(lead)), alone)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.BatchNorm1d(3), "BatchNorm1d couples the points"),
        (nn.Sequential(nn.ReLU(), nn.BatchNorm1d(3, affine=False)), "BatchNorm1d couples the points"),
        (nn.Dropout(), "Dropout draws noise of its own"),
        (nn.RReLU(), "RReLU draws noise of its own"),
        (nn.FractionalMaxPool2d(2, output_size=2), "FractionalMaxPool2d draws noise of its own"),
        (nn.Linear(2, 3), "Linear has parameters without a prior"),
        (nn.LayerNorm(3), "LayerNorm has parameters without a prior"),
        (nn.ReLU(inplace=True), "ReLU.*inplace"),  # would overwrite inputs and inducing points
        (nn.Sequential(nn.Tanh(), nn.ELU(inplace=True)), "ELU.*inplace"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_unsuitable_modules_are_refused_by_name(module, message):
    with pytest.raises(ValueError, match=message):
        Pointwise(module)


@pytest.mark.parametrize("module", [nn.Softmax(dim=0), nn.Flatten(0), nn.Softmax(dim=-3)])
def test_modules_that_mix_points_are_refused(module):
    """Over the axis of the points even a harmless module couples them."""
    with pytest.raises(ValueError, match=type(module).__name__):
        gilib.Network(normals(4, 2, 3), [module, nn.Flatten(), gilib.Linear(6, 1)])


def test_functions_and_classes_are_not_layers():
    for other in (torch.relu, nn.ReLU, "relu"):
        with pytest.raises(TypeError, match=r"layers\[1\] must be "):
            gilib.Network(normals(4, 2), [gilib.Linear(2, 2), other])
