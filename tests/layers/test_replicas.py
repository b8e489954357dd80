"""R networks in one program: what they share, and where they start."""

import torch

import gilib
from tests.support import D, normals, seeded, small_net

R, S = 3, 2


def test_shared_inputs_and_targets_broadcast():
    net, x, y = small_net(gilib.GlobalInducing(), replicas=(R,)), normals(4, 2), normals(4, 2, seed=1)
    draw = net.draw(S, generator=seeded())
    assert draw(x).shape == (S, R, 4, 2) and draw.log_pq.shape == (S, R)
    assert torch.equal(draw(x), draw(x.expand(R, 4, 2)))
    likelihood = gilib.Gaussian(0.3)
    for objective in (gilib.iwbo, lambda *a: gilib.elbo(*a, num_data=4)):
        shared, given = objective(draw, likelihood, x, y), objective(draw, likelihood, x, y.expand(R, 4, 2))
        assert shared.shape == (R,) and torch.equal(shared, given)


def test_inducing_points_and_targets_may_differ_by_replica():
    points, targets = normals(R, 4, 2), normals(R, 4, 1, seed=1)
    net = gilib.models.mlp(2, (), 1, inducing_points=points, pseudo_outputs=targets, replicas=(R,))
    assert torch.equal(net.inducing_points, points)
    assert torch.equal(next(iter(net.layers)).weights.pseudo.outputs, targets)
    shared = gilib.models.mlp(2, (), 1, inducing_points=points[0], pseudo_outputs=targets[0], replicas=(R,))
    assert torch.equal(shared.inducing_points, points[0].expand(R, 4, 2))
    assert shared.inducing_points.dtype == D


def test_replicas_start_from_different_values():
    net = small_net(gilib.Factorised(), replicas=(R,), shake=0.0)
    means = next(iter(net.layers)).weights.scaled_mean
    assert not torch.equal(means[0], means[1])
