"""Independent last-layer weights on convex, nonnegative features: error bars are convex in the input."""

import math

import pytest
import torch
from torch.nn.functional import softplus

import gilib
from tests.support.oracles import normal

pytestmark = pytest.mark.usefixtures("float64")
UNITS = 20
SHARES = torch.linspace(0, 1, 41, dtype=torch.float64)


def first_layer(generator, inputs):
    """Frozen pre-activations, affine in x `[..., inputs]`: `[..., UNITS]`."""
    weights, biases = normal(generator, inputs, UNITS), normal(generator, UNITS)
    return lambda x: x @ weights + biases


def factorised(generator):
    """A last layer of independent weights with means and variances of all sizes."""
    net = gilib.models.mlp(UNITS, (), 1, posterior=gilib.Factorised(), generator=generator)
    (layer,) = net.layers
    with torch.no_grad():
        layer.weights.log_variance.copy_(2 * normal(generator, UNITS + 1, 1))
    return net


def function_variance(net, features):
    """Var f `[N]`, without sampling: the output is affine in the noise, so units tell all."""
    with torch.no_grad():
        centre = net.draw(noise=torch.zeros(1, net.noise_size))(features)
        ends = net.draw(noise=torch.eye(net.noise_size))(features)
    return (ends - centre).square().sum(0)[:, 0]


def bump(values):
    """By how much the curve rises above the line between its ends, as a share of its height."""
    line = (1 - SHARES) * values[0] + SHARES * values[-1]
    return float(((values - line) / values.max()).max())


def segment(generator, inputs):
    """Points on the line between two random places `[N, inputs]`."""
    p, q = 2 * normal(generator, 2, 1, inputs)
    return (1 - SHARES[:, None]) * p + SHARES[:, None] * q


@pytest.mark.parametrize("psi", [torch.relu, softplus, torch.abs], ids=["relu", "softplus", "abs"])
@pytest.mark.parametrize("inputs", [1, 3])
def test_variance_and_deviation_stay_below_the_line_between_two_places(psi, inputs, generator):
    for _ in range(20):
        before, net = first_layer(generator, inputs), factorised(generator)
        variance = function_variance(net, psi(before(segment(generator, inputs))))
        assert bump(variance) < 1e-12
        assert bump(variance.sqrt()) < 1e-12
        assert min(variance[1:-1] / variance.max()) < 1 - 1e-3  # and not because it were constant


def test_features_that_are_not_convex_can_have_a_bump(generator):
    for psi in (torch.tanh, lambda a: torch.relu(1 - torch.relu(a) - torch.relu(-a))):
        found = []
        for _ in range(20):
            before, net = first_layer(generator, 1), factorised(generator)
            found.append(bump(function_variance(net, psi(before(segment(generator, 1))))))
        assert max(found) > 0.1


def test_correlated_weights_can_have_a_bump(generator):
    noise_variance, before = 0.01, first_layer(generator, 1)
    x = torch.cat([torch.linspace(-1.5, -1, 10), torch.linspace(1, 1.5, 10)])[:, None]
    exact = gilib.models.mlp(
        UNITS,
        (),
        1,
        posterior=gilib.GlobalInducing(log_precision=-math.log(noise_variance)),
        inducing_points=torch.relu(before(x)),
        pseudo_outputs=x**3,
    )
    across = 2 * SHARES[:, None] - 1  # from one cluster to the other
    assert bump(function_variance(exact, torch.relu(before(across)))) > 0.3
