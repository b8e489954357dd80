"""The dense layer: what it draws, from which inducing points, with which noise."""

import pytest
import torch

import gilib
from gilib import Linear
from gilib.posteriors import BuildContext
from tests.support import D, assert_equal, normals, seeded, shaken, with_ones


def built(posterior, bias=True):
    layer = Linear(2, 3, posterior, bias=bias)
    assert layer.build((2,), BuildContext(5, generator=seeded(), dtype=D)) == (3,)
    return shaken(layer)


@pytest.mark.parametrize("bias", [True, False])
def test_a_draw_is_a_matrix_product(bias):
    layer = built(gilib.GlobalInducing(), bias=bias)
    function, log_pq = layer.draw(normals(5, 2), 4, generator=seeded())
    x = normals(6, 2, seed=1)
    assert function.weights.shape == (4, 2 + bias, 3) and log_pq.shape == (4,)
    assert_equal(function(x), ((with_ones(x) if bias else x) @ function.weights).detach())


def test_local_points_do_not_see_the_layer_below():
    layer = built(gilib.LocalInducing(num_inducing=7))
    assert not layer.needs_inducing and layer.weights.inducing_inputs.shape == (7, 2)
    noise = layer.base_noise(2, seeded())
    a, b = layer.draw(normals(5, 2), noise=noise), layer.draw(noise=noise)
    assert torch.equal(a.function.weights, b.function.weights)


@pytest.mark.parametrize("u", [normals(4, 2), normals(1, 2), normals(5, 3), normals(2, 4, 2)])
def test_inducing_points_that_do_not_fit_are_never_accepted(u):
    """A layer built for five points refuses four, or one, which would broadcast."""
    layer = built(gilib.GlobalInducing())
    with pytest.raises((ValueError, RuntimeError)):
        layer.draw(u, 2, generator=seeded())


def test_a_layer_outside_a_network_says_that_it_is_not_built():
    with pytest.raises((RuntimeError, ValueError), match="build"):
        Linear(2, 3).draw(normals(5, 2))
