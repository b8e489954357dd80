"""Layers side by side: what they draw, estimate and say of Gaussian outputs is that of each by itself."""

from functools import partial

import pytest
import torch
from torch import nn

import gilib
from gilib.draws import Estimate, JointDraw
from gilib.layers import Concat, FixedLinear, Linear, Sum
from gilib.posteriors import BuildContext
from tests.support import D, assert_equal, normals, seeded

X = normals(5, 2, seed=1)


def built(layer, points=4):
    layer.build((2,), BuildContext(points, dtype=D, generator=seeded()))
    return layer


def process(outputs):
    return gilib.GP(2, outputs, posterior=gilib.FreeGaussian(3, initial_scale=0.5))


@pytest.mark.parametrize(("kind", "join"), [(Concat, partial(torch.cat, dim=-1)), (Sum, sum)])
def test_outputs_of_draws_are_joined_or_added(kind, join):
    layer, u = built(kind([Linear(2, 3, gilib.Factorised()), Linear(2, 3)])), normals(4, 2)
    noise = layer.base_noise(3, seeded(1))
    drawn = layer.draw(u, noise=noise)
    pieces = noise.split([branch.noise_size for branch in layer], dim=-1)
    alone = [branch.draw(u, noise=piece) for branch, piece in zip(layer, pieces, strict=True)]
    assert torch.equal(drawn(X), join([part(X) for part in alone]))
    assert torch.equal(drawn.log_pq, alone[0].log_pq + alone[1].log_pq)
    assert torch.equal(drawn.carry(u), join([part.carry(u) for part in alone]))


@pytest.mark.parametrize("mode", [Estimate, JointDraw])
def test_processes_at_points(mode):
    layer = built(Concat([process(1), process(2)]))
    noise = layer.noise_for(mode, 3, 5, seeded(1))
    found = layer.sample(None, noise, mode)
    pieces = noise.split([branch.noise_sizes(mode) for branch in layer])
    parts = [branch.sample(None, piece, mode) for branch, piece in zip(layer, pieces, strict=True)]
    assert_equal(found(X).detach(), torch.cat([part(X) for part in parts], -1).detach())
    assert_equal(found.log_pq.detach(), sum(part.log_pq for part in parts).detach())


def test_moments_of_parts_that_are_not_random():
    """An output that is known has no variance; a sum of it and a process has the process's."""
    matrix = normals(2, 2, seed=3)
    both = built(Concat([FixedLinear(2, 2, matrix), process(1)]))
    mean, variance = both.estimate(num_samples=1, num_points=5).moments(X)
    assert_equal(mean[0, :, :2].detach(), X @ matrix)
    assert torch.equal(variance[0, :, :2], torch.zeros(5, 2, dtype=D)) and (variance[0, :, 2] > 0).all()
    added = built(Sum([FixedLinear(2, 2, matrix), process(2)]))
    assert (added.estimate(num_samples=1, num_points=5).moments(X).variance > 0).all()
    known = built(Concat([FixedLinear(2, 2, matrix), nn.Identity()]))
    assert known.draw(num_samples=2).moments(X).variance is None


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"are joined must give vectors, got shapes \[\[3, 4, 4\]\]"):
        Concat([nn.Identity()]).build((3, 4, 4), BuildContext(4))
    with pytest.raises(ValueError, match="Concat needs at least one branch"):
        Concat([])
    with pytest.raises(ValueError, match="Sum needs at least one branch"):
        Sum([])
