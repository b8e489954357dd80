"""`gilib.models.mlp` builds what it says."""

import pytest
import torch
from torch import nn

import gilib
from tests.support import D, assert_equal, normals, seeded, with_ones


def shorts(net):
    return [layer.posterior.short_name for layer in net.layers if layer.has_weights]


def test_widths_and_nonlinearities():
    net = gilib.models.mlp(2, (5, 4), 3, inducing_points=normals(6, 2), dtype=torch.float32)
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    described = [layer.describe() for layer in net.layers]
    assert described == ["Linear(2 → 5)", "ReLU", "Linear(5 → 4)", "ReLU", "Linear(4 → 3)"]
    assert net.output_shape == (3,) and net.input_shape == (2,)


def test_no_hidden_layer_is_linear_regression_and_no_activation_a_deep_linear_network():
    assert len(list(gilib.models.mlp(2, (), 1, inducing_points=normals(6, 2)).layers)) == 1
    net = gilib.models.mlp(2, (4,), 1, inducing_points=normals(6, 2), activation=None)
    draw = net.draw(3, generator=seeded())
    first, second = (f.weights for f in draw.function.functions)
    x = normals(5, 2)
    assert_equal(draw(x), (with_ones(with_ones(x) @ first) @ second).detach())


@pytest.mark.parametrize(
    ("posterior", "expected"),
    [
        (None, ["fac", "fac", "gi"]),
        ((gilib.FromPrior(), gilib.GlobalInducing()), ["rand", "rand", "gi"]),
        ([gilib.LocalInducing(), gilib.Factorised(), gilib.GlobalInducing()], ["li", "fac", "gi"]),
    ],
)
def test_posteriors_by_layer(posterior, expected):
    net = gilib.models.mlp(2, (5, 4), 3, posterior=posterior, inducing_points=normals(6, 2))
    assert shorts(net) == expected


@pytest.mark.parametrize("bias", [True, False])
def test_bias_counts_as_an_input(bias):
    net = gilib.models.mlp(2, (5,), 3, inducing_points=normals(6, 2), bias=bias)
    assert [layer.fan_in for layer in net.layers if layer.has_weights] == [2 + bias, 5 + bias]
    assert net.noise_size == (2 + bias) * 5 + (5 + bias) * 3
    outputs = net.draw(2)(torch.zeros(1, 2, dtype=D))
    assert bool((outputs == 0).all()) != bias


def test_starting_values_of_the_paper():
    """App. O: log-precisions -4, 0 in the last layer; targets as the last pseudo-outputs; U_0 as given."""
    points, targets = normals(6, 2), normals(6, 1, seed=1)
    start = {"inducing_points": points, "pseudo_outputs": targets}
    net = gilib.models.mlp(2, (5, 4), 1, posterior=gilib.GlobalInducing(), **start)
    posteriors = [layer.weights.pseudo for layer in net.layers if layer.has_weights]
    for posterior, start in zip(posteriors, (-4.0, -4.0, 0.0), strict=True):
        assert_equal(posterior.log_precision.detach(), torch.full((6,), start))
    assert torch.equal(posteriors[-1].outputs, targets)
    assert torch.equal(net.inducing_points, points)
    assert not torch.equal(posteriors[0].outputs[:, :1], targets)
    with torch.no_grad():
        net.inducing_points.add_(1.0)
        posteriors[-1].outputs.add_(1.0)
    assert torch.equal(points, normals(6, 2)) and torch.equal(targets, normals(6, 1, seed=1))  # copies


@pytest.mark.parametrize("activation", [nn.LeakyReLU(0.2), nn.Sequential(nn.Tanh(), nn.Hardtanh(-0.5, 0.25))])
def test_activations_with_arguments(activation, tmp_path):
    """Of which every place has its own, and which files keep."""
    x = normals(6, 2)
    net = gilib.models.mlp(2, (3, 3), 1, posterior=gilib.Factorised(), activation=activation, dtype=D)
    first, second = (layer.module for layer in net.layers if not layer.has_weights)
    assert first is not second and first is not activation and str(first) == str(activation)
    noise = normals(3, net.noise_size)
    draw, outputs = net.draw(noise=noise), x
    for k in range(3):
        outputs = draw.function.functions[2 * k](activation(outputs) if k else outputs)
    assert torch.equal(draw(x), outputs)
    gilib.save(tmp_path / "model.pt", net, gilib.Gaussian(0.1))
    again, *_ = gilib.load(tmp_path / "model.pt")
    assert torch.equal(again.draw(noise=noise)(x), draw(x))


def test_inducing_points_are_a_parameter_only_where_a_layer_draws_from_them():
    for posterior, wanted in ((gilib.GlobalInducing(), True), (gilib.Factorised(), False)):
        net = gilib.models.mlp(2, (5,), 1, posterior=posterior, inducing_points=normals(6, 2))
        assert (net.inducing_points is not None) == wanted
