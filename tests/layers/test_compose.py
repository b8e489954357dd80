"""Sequences, residual blocks and layers side by side compose draws, for data and inducing points alike."""

from dataclasses import replace
from functools import partial
from unittest import mock

import pytest
import torch
from torch import nn

import gilib
from gilib import Draw, Linear, Residual, Sequential
from gilib.draws import Estimate, JointDraw
from gilib.layers import Concat, FixedLinear, Sum
from gilib.layers.linear import LinearFunction
from gilib.posteriors import BuildContext
from tests.support import PRIORS, D, assert_equal, normals, seeded, shaken


def built(layer):
    layer.build((2,), BuildContext(5, last=True, generator=seeded(), dtype=D))
    return shaken(layer)


def branch(posterior):
    return [Linear(2, 3, posterior, PRIORS["scale"]), nn.Tanh(), Linear(3, 2, posterior, PRIORS["scale"])]


def test_residual_adds_its_input():
    sequence, block = (built(kind(branch(gilib.LocalInducing()))) for kind in (Sequential, Residual))
    u, x, noise = normals(5, 2), normals(4, 2, seed=1), sequence.base_noise(3, seeded())
    plain, residual = sequence.draw(u, noise=noise), block.draw(u, noise=noise)
    assert_equal(residual(x), (x + plain(x)).detach())
    assert torch.equal(residual.log_pq, plain.log_pq)


def test_the_last_layer_with_weights_gets_the_targets_wherever_it_is():
    targets = normals(5, 1, seed=2)
    layers = [Linear(2, 3), Sequential([nn.ReLU(), Residual([Linear(3, 3)]), Linear(3, 1)]), nn.Tanh()]
    net = gilib.Network(normals(5, 2), layers, pseudo_outputs=targets)
    last = layers[1].layers[2].weights
    assert torch.equal(last.pseudo.outputs, targets)
    assert_equal(last.pseudo.log_precision.detach(), torch.zeros(5))
    others = [p for name, p in net.named_parameters() if name.endswith("scaled_log_precision")]
    assert sum(bool((p == 0).all()) for p in others) == 1


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([Linear(2, 3), Linear(4, 1)], r"layer 1: Linear\(4 → 1\) takes points of shape \[4\], got \[3\]"),
        ([Linear(3, 1)], r"layer 0: Linear\(3 → 1\) takes points of shape \[3\], got \[2\]"),
        ([Linear(2, 3), Residual([Linear(3, 2)])], r"layer 1: a residual branch must keep.*\[3\] became"),
        ([Residual([nn.ReLU(), Linear(3, 3)])], r"layer 0: layer 1: Linear\(3 → 3\) takes"),
        ([Linear(2, 4), nn.MaxPool2d(2)], r"layer 1: MaxPool2d cannot take points of shape \[4\]"),
        ([], "at least one layer"),
    ],
)
def test_widths_that_disagree_name_the_layer(layers, message):
    with pytest.raises(ValueError, match=message):
        gilib.Network(normals(5, 2), layers)


def test_without_inducing_points_the_first_layer_tells_the_shape():
    net = gilib.Network(None, [Linear(2, 1, gilib.Factorised())])
    assert net.input_shape == (2,)
    with pytest.raises(ValueError, match="give input_shape"):
        gilib.Network(None, [nn.Flatten(), Linear(4, 1, gilib.Factorised())])
    net = gilib.Network(None, [nn.Flatten(), Linear(4, 1, gilib.Factorised())], input_shape=(2, 2))
    assert net.draw(3)(torch.zeros(5, 2, 2)).shape == (3, 5, 1)


class Halved(Residual):
    """A user's block that changes what it drew: nothing may go around it."""

    def sample(self, inducing, noise, mode):
        drawn = super().sample(inducing, noise, mode)
        return replace(drawn, function=lambda x: 0.5 * drawn(x), carried=None)


def nest(kind):
    """Networks in which inducing points have to come out at the far end of every kind of composite."""
    first = {
        "residual": lambda: Residual(branch(gilib.GlobalInducing())),
        "sum": lambda: Sum([Sequential(branch(gilib.GlobalInducing())), Linear(2, 2, gilib.Factorised())]),
        "nested": lambda: Residual([nn.Tanh(), Residual(branch(gilib.GlobalInducing())), nn.Tanh()]),
        "factorised": lambda: Residual(branch(gilib.Factorised())),
        "own": lambda: Halved(branch(gilib.GlobalInducing())),
    }[kind]()
    layers = [first, nn.Tanh(), Sequential([Linear(2, 2), nn.Tanh()]), Linear(2, 1)]
    return shaken(gilib.Network(normals(5, 2), layers, generator=seeded()))


@pytest.mark.parametrize("kind", ["residual", "sum", "nested", "factorised", "own"])
def test_inducing_points_pass_each_layer_once(kind):
    net, x = nest(kind), normals(4, 2, seed=1)
    noise, passes, apply = net.base_noise(3, seeded()), [], LinearFunction.__call__

    def counted(function, points):
        passes.append(id(function))
        return apply(function, points)

    def bound_and_slopes():
        draw = net.draw(noise=noise)
        value = draw(x).square().sum() + draw.log_pq.sum()
        return value, torch.autograd.grad(value, list(net.parameters()))

    with mock.patch.object(LinearFunction, "__call__", counted):
        draw = net.draw(noise=noise)
        before, outputs = len(passes), draw.inducing_outputs
    assert before < len(passes), "those above the last layer that needs them, once somebody asks"
    assert_equal(outputs.detach(), draw(net.inducing_points).detach(), 1e-12)
    weights = sum(isinstance(module, Linear) for module in net.modules())
    again = kind == "own"  # only its author knows what a changed function gives: it is evaluated
    assert len(set(passes)) == weights == len(passes) - again
    assert_equal(net.draw(noise=noise)(x).detach(), draw(x).detach(), 0.0)
    value, slopes = bound_and_slopes()
    with mock.patch.object(Draw, "carry", lambda drawn, points: drawn(points)):
        plain, plain_slopes = bound_and_slopes()
    assert_equal(value.detach(), plain.detach(), 1e-12)
    for slope, plain_slope in zip(slopes, plain_slopes, strict=True):
        assert_equal(slope, plain_slope, 1e-10)


@pytest.mark.parametrize("wrap", [list, lambda layers: [Residual(layers)], lambda layers: [Sum(layers)]])
def test_one_layer_that_prefers_its_estimate_is_enough(wrap):
    process = gilib.GP(2, 2, posterior=gilib.posteriors.FreeGaussian(num_inducing=4))
    net = gilib.Network(None, wrap([process, nn.Tanh()]), input_shape=(2,))
    assert net.layers.prefers_estimate


def test_a_sequence_is_indexed_and_counted_as_one_expects():
    first = Linear(2, 3)
    sequence = Sequential([first, nn.ReLU()])
    assert len(sequence) == 2 and sequence[0] is first and [sequence[0], sequence[-1]] == [*sequence]
    with pytest.raises(IndexError):
        sequence[2]


X = normals(5, 2, seed=1)


def placed(layer, points=4):
    layer.build((2,), BuildContext(points, dtype=D, generator=seeded()))
    return layer


def process(outputs):
    return gilib.GP(2, outputs, posterior=gilib.FreeGaussian(3, initial_scale=0.5))


@pytest.mark.parametrize(("kind", "join"), [(Concat, partial(torch.cat, dim=-1)), (Sum, sum)])
def test_outputs_of_draws_are_joined_or_added(kind, join):
    layer, u = placed(kind([Linear(2, 3, gilib.Factorised()), Linear(2, 3)])), normals(4, 2)
    noise = layer.base_noise(3, seeded(1))
    drawn = layer.draw(u, noise=noise)
    pieces = noise.split([branch.noise_size for branch in layer], dim=-1)
    alone = [branch.draw(u, noise=piece) for branch, piece in zip(layer, pieces, strict=True)]
    assert torch.equal(drawn(X), join([part(X) for part in alone]))
    assert torch.equal(drawn.log_pq, alone[0].log_pq + alone[1].log_pq)
    assert torch.equal(drawn.carry(u), join([part.carry(u) for part in alone]))


@pytest.mark.parametrize("mode", [Estimate, JointDraw])
def test_processes_at_points(mode):
    layer = placed(Concat([process(1), process(2)]))
    noise = layer.noise_for(mode, 3, 5, seeded(1))
    found = layer.sample(None, noise, mode)
    pieces = noise.split([branch.noise_sizes(mode) for branch in layer])
    parts = [branch.sample(None, piece, mode) for branch, piece in zip(layer, pieces, strict=True)]
    assert_equal(found(X).detach(), torch.cat([part(X) for part in parts], -1).detach())
    assert_equal(found.log_pq.detach(), sum(part.log_pq for part in parts).detach())


def test_moments_of_parts_that_are_not_random():
    """An output that is known has no variance; a sum of it and a process has the process's."""
    matrix = normals(2, 2, seed=3)
    both = placed(Concat([FixedLinear(2, 2, matrix), process(1)]))
    mean, variance = both.estimate(num_samples=1, num_points=5).moments(X)
    assert_equal(mean[0, :, :2].detach(), X @ matrix)
    assert torch.equal(variance[0, :, :2], torch.zeros(5, 2, dtype=D)) and (variance[0, :, 2] > 0).all()
    added = placed(Sum([FixedLinear(2, 2, matrix), process(2)]))
    assert (added.estimate(num_samples=1, num_points=5).moments(X).variance > 0).all()
    known = placed(Concat([FixedLinear(2, 2, matrix), nn.Identity()]))
    assert known.draw(num_samples=2).moments(X).variance is None


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"are joined must give vectors, got shapes \[\[3, 4, 4\]\]"):
        Concat([nn.Identity()]).build((3, 4, 4), BuildContext(4))
    with pytest.raises(ValueError, match="Concat needs at least one branch"):
        Concat([])
    with pytest.raises(ValueError, match="Sum needs at least one branch"):
        Sum([])
