"""Estimates of convolutions: at every image of their own, and there of the distribution of the draws."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import conv2d

import gilib
from tests.layers.test_conv import POINTS, POSTERIORS, built, images
from tests.support import D, assert_equal, assert_same_mean, normals, seeded


def factorised(size=0.5):
    """A convolution whose weights are far from certain."""
    layer = built(gilib.Factorised(initial_variance=size))
    layer.weights.log_variance.data += normals(*layer.weights.log_variance.shape, seed=5)
    return layer


def test_an_estimate_has_a_kernel_for_every_image():
    layer, x = factorised(), images(4)
    noise = layer.estimate_noise(3, 4, seeded(1))
    estimate = layer.estimate(noise=noise)
    white = noise.draw.unflatten(-1, (18, 3))[:, None]  # [S, 1, I, O]
    inputs, outputs = noise.points.sign().split([2, 3], -1)
    flips = inputs.repeat_interleave(9, -1)[..., None] * outputs[..., None, :]  # [S, N, I, O]
    weights = layer.weights.mean + (0.5 * layer.weights.log_variance).exp() * flips * white
    kernels = weights.mT.unflatten(-1, (2, 3, 3))
    wanted = [[conv2d(x[n : n + 1], kernels[s, n], padding=1)[0] for n in range(4)] for s in range(3)]
    assert_equal(estimate(x), torch.stack([torch.stack(row) for row in wanted]))
    dists = Normal(layer.weights.mean, layer.weights.deviation), Normal(torch.zeros((), dtype=D), 18**-0.5)
    assert_equal(estimate.log_pq, -kl_divergence(*dists).sum().expand(3))


@pytest.mark.parametrize(
    "posterior",
    [
        *POSTERIORS.values(),
        gilib.posteriors.Conjugate(),
        gilib.posteriors.Dropout(0.4),
        gilib.posteriors.MatrixGaussian(),
    ],
    ids=lambda posterior: posterior.short_name,
)
def test_every_estimate_has_the_spread_of_the_draws_where_pixels_are_averaged(posterior):
    layer, x, count = built(posterior), images(3, seed=9), 4000
    given = images(POINTS) if layer.needs_inducing else None
    draw = layer.draw(given, count, generator=seeded(1))
    estimate = layer.estimate(given, count, 3, generator=seeded(2))
    squares = [each(x).mean((-2, -1)).square().sum(-1).detach() for each in (draw, estimate)]
    assert_same_mean(*squares)
