"""The dense layer, and a fixed linear map, of which nothing is trained."""

import math

import pytest
import torch

import gilib
from gilib import Linear
from gilib.posteriors import BuildContext
from tests.support import D, assert_equal, normals, refusals, seeded, shaken, with_ones


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


P = normals(3, 2, seed=1)


def test_data_and_inducing_points_are_mapped_alike():
    net = gilib.Network(
        normals(4, 3), [gilib.layers.FixedLinear(3, 2, P), gilib.Linear(2, 1)], generator=seeded()
    )
    draw = net.draw(5, generator=seeded(1))
    layer = next(iter(net.layers))
    own = layer.draw(normals(4, 3), noise=normals(5, 0))
    assert_equal(own.carry(normals(4, 3)), normals(4, 3) @ P)
    assert torch.equal(own.log_pq, torch.zeros(5, dtype=D)) and own(normals(6, 3)).shape == (6, 2)
    dense = gilib.Network(normals(4, 3) @ P, [gilib.Linear(2, 1)], generator=seeded())
    dense.load_state_dict(
        {key.replace("layers.1", "layers.0"): v for key, v in net.state_dict().items() if "matrix" not in key}
        | {"inducing_points": normals(4, 3) @ P}
    )
    x = normals(6, 3, seed=2)
    assert_equal(draw(x).detach(), dense.draw(5, generator=seeded(1))(x @ P).detach(), 1e-12)


def test_nothing_is_trained_and_the_matrix_belongs_to_the_state():
    given = P.clone()
    layer = gilib.layers.FixedLinear(3, 2, given)
    given += 1.0
    assert torch.equal(layer.matrix, P) and not list(layer.parameters())
    assert list(layer.state_dict()) == ["matrix"] and "matrix" not in layer.config()
    net = gilib.Network(normals(4, 3).float(), [layer, gilib.Linear(2, 1)], replicas=(2,), generator=seeded())
    assert layer.matrix.dtype == torch.float32
    assert net.draw(3)(normals(5, 3).float()).shape == (3, 2, 5, 1)


REFUSED = {
    "shape": (lambda: gilib.layers.FixedLinear(2, 3, P), r"\(in_features, out_features\), got \[3, 2\]"),
    "NaN": (lambda: gilib.layers.FixedLinear(3, 2, math.nan * P), "matrix holds 6 NaN or infinite entries"),
    "width": (
        lambda: gilib.Network(normals(4, 2), [gilib.layers.FixedLinear(3, 2, P), gilib.Linear(2, 1)]),
        r"FixedLinear\(3 → 2\) takes points of shape \[3\], got \[2\]",
    ),
}
test_refusals = refusals(REFUSED)
