"""A fixed linear map: what it computes, that nothing of it is trained, its state and its refusals."""

import math

import torch

import gilib
from tests.support import D, assert_equal, normals, refusals, seeded

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
