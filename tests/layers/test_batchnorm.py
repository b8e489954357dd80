"""Batch normalisation by inducing points."""

import pytest
import torch

import gilib
from gilib.layers import Conv2d, InducingBatchNorm, Linear
from gilib.posteriors import BuildContext
from tests.support import assert_equal, normals, seeded


def built(shape, replicas=()):
    layer = InducingBatchNorm()
    assert layer.build(shape, BuildContext(5, replicas)) == shape
    return layer


@pytest.mark.parametrize("shape", [(3,), (3, 4, 2)])
def test_the_inducing_points_are_normalised_as_torch_does_and_data_by_the_same_map(shape):
    u, x = 2.0 + 3.0 * normals(5, *shape), normals(7, *shape, seed=1)
    draw = built(shape).draw(u)
    wanted = torch.nn.functional.batch_norm(u, None, None, training=True, eps=1e-5)
    assert_equal(draw(u), wanted, 1e-10)
    assert torch.equal(draw.log_pq, torch.zeros(1))
    assert torch.equal(draw(x), torch.cat([draw(part) for part in x.split(2)]))


def test_every_sample_and_replica_has_its_own_statistics():
    u, x = normals(3, 2, 5, 4, 2, 2), normals(3, 2, 6, 4, 2, 2, seed=1)
    together = built((4, 2, 2), replicas=(2,)).draw(u, noise=torch.zeros(3, 2, 0))
    for s in range(3):
        for r in range(2):
            alone = built((4, 2, 2)).draw(u[s, r])
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
        ((3, 4), 5, r"points of shape \[C\] or images \[C, H, W\], got \[3, 4\]"),
        ((3,), None, "takes its statistics from inducing points, got None"),
        ((3,), 1, "takes its statistics from inducing points, got 1"),
    ],
)
def test_bad_shapes(shape, points, message):
    with pytest.raises(ValueError, match=message):
        InducingBatchNorm().build(shape, BuildContext(points))
