"""BALI at convolutions: regressions from explicit patches, and dense layers that are convolutions."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import unfold

import gilib
from gilib.draws import record
from gilib.regression import residuals
from gilib.regression.joint import Place
from gilib.training import Bali
from gilib.training.rules.bali import regression_of
from tests.support import D, assert_equal, normals, seeded
from tests.support.layerwise import LABELS, V0, N, assert_same_states, dense, fit, network, regressions

IMAGES = normals(N, 2, 5, 4, seed=8)
PRIOR = gilib.NealPrior(math.sqrt(V0))


def conv(c, o, k, **settings):
    return gilib.Conv2d(c, o, k, gilib.posteriors.Conjugate(), PRIOR, **settings)


def convolutions(**settings):
    """Stride and padding; the second convolution's images differ from sample to sample."""
    layers = [conv(2, 3, 3, stride=2), nn.Tanh(), conv(3, 2, 2, padding=0), nn.Flatten()]
    return network(*layers, dense(4, 3, prior=PRIOR), shape=(2, 5, 4), **settings)


@pytest.mark.parametrize("replicas", [(), (2,)])
def test_moments_are_those_of_patches(replicas):
    net = convolutions(replicas=replicas)
    steps = record(net.draw(3, generator=seeded()).function, IMAGES[:6]).drawn
    for layer, step in zip((list(net.layers)[0], list(net.layers)[2]), steps, strict=False):
        own = regression_of(layer, replicas, False)
        mean, shift = normals(*own.posterior.mean.shape, seed=1), normals(*step.output.shape, seed=2)
        found = own.residuals(step, Place(mean), shift, 0.7)
        images = step.input.expand(*step.output.shape[:-3], *step.input.shape[-3:])
        windows = layer.windows
        patches = unfold(
            images.flatten(0, -4), windows.kernel, padding=windows.padding, stride=windows.stride
        )
        patches = patches.mT.unflatten(0, images.shape[:-3]).flatten(-3, -2)  # [S, R, B H' W', I]
        targets = (step.output + shift).flatten(-2).mT.flatten(-3, -2)
        joined = [values.movedim(0, -3).flatten(-3, -2) for values in (patches, targets)]
        expected = residuals(*joined, mean, 0.7, 1.0 / math.sqrt(layer.fan_in))
        assert_equal(found.gram.tril(), expected.gram.tril(), 1e-10)
        assert_equal(found.cross, expected.cross, 1e-10)
        assert_equal(found.scatter, expected.scatter, 1e-10)
        assert own.windows * 6 * 3 == joined[0].shape[-2]


def test_one_pixel_is_a_dense_layer():
    """Images of one pixel: same noise, same states, and the same gradients."""
    pixels, rule = normals(N, 2, seed=8), Bali(0.3, 0.2)
    first, last = dense(2, 4, prior=PRIOR, bias=False), dense(4, 3, prior=PRIOR, bias=False)
    flat = network(first, nn.Tanh(), last)
    images = network(conv(2, 4, 1), nn.Tanh(), conv(4, 3, 1), nn.Flatten(), shape=(2, 1, 1))
    for net, x in ((flat, pixels), (images, pixels[..., None, None])):
        fit(net, gilib.Categorical(), x, LABELS, rule=rule, batch_size=105)
    assert_same_states(flat, images)


def test_every_window_is_an_observation():
    """The same image in every window of a layer that sees it whole: V counts all of them."""
    net = network(conv(1, 3, 2, padding=0), nn.AdaptiveAvgPool2d(1), nn.Flatten(), shape=(1, 3, 5))
    x = torch.ones(N, 1, 3, 5, dtype=D)
    fit(net, gilib.Categorical(), x, LABELS, steps=3, rule=Bali(prior="relative"))
    own = regressions(net)[0]
    assert float(own.df) == 3 + 1 + 8 * N
    expected = torch.eye(4, dtype=D) / V0 + 8 * N / 4  # features 1 / √4
    assert_equal(own.precision.tril(), expected.tril(), 1e-10)
