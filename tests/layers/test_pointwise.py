"""A plain module is a layer, applied to every sample by itself; batch normalisation by inducing points."""

import pytest
import torch
from torch import nn

import gilib
from gilib.layers import Conv2d, InducingBatchNorm, Linear, Pointwise
from gilib.posteriors import BuildContext
from tests.support import D, assert_equal, normals, seeded

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


def normalising(shape, replicas=()):
    layer = InducingBatchNorm()
    assert layer.build(shape, BuildContext(5, replicas)) == shape
    return layer


@pytest.mark.parametrize("shape", [(3,), (3, 4, 2)])
def test_the_inducing_points_are_normalised_as_torch_does_and_data_by_the_same_map(shape):
    u, x = 2.0 + 3.0 * normals(5, *shape), normals(7, *shape, seed=1)
    draw = normalising(shape).draw(u)
    wanted = torch.nn.functional.batch_norm(u, None, None, training=True, eps=1e-5)
    assert_equal(draw(u), wanted, 1e-10)
    assert torch.equal(draw.log_pq, torch.zeros(1))
    assert torch.equal(draw(x), torch.cat([draw(part) for part in x.split(2)]))


def test_every_sample_and_replica_has_its_own_statistics():
    u, x = normals(3, 2, 5, 4, 2, 2), normals(3, 2, 6, 4, 2, 2, seed=1)
    together = normalising((4, 2, 2), replicas=(2,)).draw(u, noise=torch.zeros(3, 2, 0))
    for s in range(3):
        for r in range(2):
            alone = normalising((4, 2, 2)).draw(u[s, r])
            assert_equal(together(x)[s, r], alone(x[s, r]), 1e-12)


def test_inducing_points_pass_below_it_through_layers_that_need_none():
    """fac → batch norm → gi: the draw of the first layer carries inducing points up to the others."""
    layers = [Conv2d(1, 2, 3, gilib.Factorised()), InducingBatchNorm(), torch.nn.Flatten(), Linear(32, 2)]
    net = gilib.Network(normals(5, 1, 4, 4), layers, generator=seeded())
    draw = net.draw(3, generator=seeded(1))
    normalised = gilib.record(draw.function, net.inducing_points).outputs[1]
    assert_equal(normalised.mean((1, 3, 4)).detach(), torch.zeros(3, 2), 1e-12)
    assert draw(normals(6, 1, 4, 4)).shape == (3, 6, 2)


@pytest.mark.parametrize(
    ("shape", "points", "message"),
    [
        ((3, 4), 5, r"points \[C\] or images \[C, H, W\], got \[3, 4\]"),
        ((3,), None, "takes its statistics from inducing points, got None"),
        ((3,), 1, "takes its statistics from inducing points, got 1"),
    ],
)
def test_bad_shapes(shape, points, message):
    with pytest.raises(ValueError, match=message):
        InducingBatchNorm().build(shape, BuildContext(points))
