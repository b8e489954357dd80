"""Estimates: points sampled independently, what can be integrated out with its closed-form divergence."""

import pickle

import pytest
import torch
from torch import nn

import gilib
from gilib.draws import Estimate
from gilib.randomness import Noise
from tests.support import (
    D,
    assert_equal,
    assert_mean,
    assert_same_mean,
    normals,
    seeded,
    small_net,
    with_ones,
)

SAMPLES = 4000
X = normals(3, 2, seed=1)


def one_layer(bias=True, **settings):
    return small_net(gilib.Factorised(), hidden=(), bias=bias, **settings)


@pytest.mark.parametrize("bias", [True, False])
def test_one_layers_outputs_against_the_closed_form(bias):
    net = one_layer(bias)
    posterior = next(iter(net.layers)).weights
    features = with_ones(X) if bias else X
    outputs = net.estimate(SAMPLES, 3, generator=seeded(2))(X).detach()
    mean = features @ posterior.scaled_mean.detach() / (2 + bias) ** 0.5
    variance = features.square() @ posterior.log_variance.detach().exp()
    assert outputs.shape == (SAMPLES, 3, 2)
    assert_mean(outputs, mean)
    assert_mean((outputs - mean).square(), variance)
    assert_mean((outputs - mean)[:, :1] * (outputs - mean)[:, 1:], 0.0)  # points share no noise


def test_the_elbo_has_the_same_expectation_with_less_noise():
    net, y = small_net(gilib.Factorised(initial_variance=0.1)), normals(3, 2, seed=3)
    bounds = [
        gilib.elbo(draw, gilib.Gaussian(0.5), X, y, num_data=3, reduction="none").detach()
        for draw in (net.draw(SAMPLES, generator=seeded(2)), net.estimate(SAMPLES, 3, generator=seeded(3)))
    ]
    assert_same_mean(*bounds)
    assert bounds[1].var() < bounds[0].var()


def test_gradients_stay_finite_where_all_inputs_are_zero():
    """Without a bias a point at zero has no variance, whose square root has no derivative."""
    net = one_layer(bias=False)
    net.estimate(3, 2, generator=seeded())(torch.zeros(2, 2, dtype=D)).sum().backward()
    for name, parameter in net.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize("posterior", [gilib.GlobalInducing(), gilib.LocalInducing(), gilib.FromPrior()])
def test_what_integrates_nothing_out_estimates_by_drawing(posterior):
    net = small_net(posterior)
    estimate, draw = net.estimate(2, 3, generator=seeded()), net.draw(2, generator=seeded())
    assert torch.equal(estimate(X), draw(X)) and torch.equal(estimate.log_pq, draw.log_pq)
    ours, theirs = estimate.inducing_outputs, draw.inducing_outputs
    assert (ours is None and theirs is None) or torch.equal(ours, theirs)


@pytest.mark.parametrize("below", [gilib.Factorised(), gilib.posteriors.Dropout(0.3)])
def test_below_a_layer_that_needs_inducing_points_one_that_could_not_carry_them_draws(below):
    """A function there, points anew above: the noise is exactly that of the parts."""
    layers = [gilib.Linear(2, 4, below), nn.ReLU(), gilib.Linear(4, 3), gilib.Linear(3, 2, below)]
    net = gilib.Network(normals(5, 2), layers, dtype=D, generator=seeded())
    first, _, middle, last = net.layers
    noise = net.estimate_noise(7, 3, seeded(1))
    assert noise.draw.shape == (7, first.noise_size + middle.noise_size)
    assert noise.points.shape == (7, 3, last.noise_sizes(Estimate).points)
    estimate = net.estimate(noise=noise)
    lower, upper = noise.draw.split([first.noise_size, middle.noise_size], -1)
    f = first.draw(noise=lower)
    g = middle.draw(f(net.inducing_points).relu(), noise=upper)
    h = last.estimate(noise=Noise(noise.draw[:, :0], noise.points))
    assert_equal(estimate(X).detach(), h(g(f(X).relu())).detach())
    assert_equal(estimate.log_pq.detach(), (f.log_pq + g.log_pq + h.log_pq).detach())
    assert estimate.inducing_outputs is None


def test_an_estimate_is_a_value_and_a_pure_function_of_its_noise():
    """Evaluated twice, pickled, or made again from the same noise: the same outputs."""
    net = small_net((gilib.Factorised(), gilib.posteriors.Dropout(0.4)))
    noise = net.estimate_noise(4, 3, seeded(1))
    estimate = net.estimate(noise=noise)
    with torch.no_grad():
        copy = pickle.loads(pickle.dumps(net.estimate(noise=noise)))
    outputs = estimate(X)
    for again in (estimate, copy, net.estimate(noise=noise), net.estimate(4, 3, generator=seeded(1))):
        assert torch.equal(outputs, again(X))


def test_some_points_are_their_part_of_all():
    """Processes share the points of a minibatch: with their slice of the noise they get their slice."""
    net = small_net(gilib.Factorised(), replicas=(2,))
    noise = net.estimate_noise(4, 3, seeded(1))
    whole = net.estimate(noise=noise)(X)
    part = net.estimate(noise=Noise(noise.draw, noise.points[..., 1:, :]))(X[1:])
    assert_equal(part.detach(), whole[..., 1:, :].detach())


def test_other_points_than_it_was_made_for():
    estimate = one_layer().estimate(2, 4)
    with pytest.raises(ValueError, match=r"made for 4 points, not for 3: make one"):
        estimate(X)
    net = one_layer()
    with pytest.raises(ValueError, match=r"noise must have shape \[S, 4, 2\], got \[2, 4, 3\]"):
        net.estimate(noise=Noise(normals(2, 0), normals(2, 4, 3)))


def test_the_divergence_of_the_priors_own_parameters_counts():
    """Exactly: an average over samples hides it in their noise."""
    layer = small_net(gilib.Factorised(), gilib.ScalePrior()).layers[0]
    noise = layer.estimate_noise(3, 4, seeded())
    prior, posterior = layer.modules_built()
    own, rest = noise.draw.split([prior.noise_size, posterior.estimate_size.draw], -1)
    precision, log_pq = prior.draw(own)
    _, of_weights = posterior.estimate(None, precision, Noise(rest, noise.points), layer.function)
    assert_equal(layer.estimate(num_samples=3, num_points=4, noise=noise).log_pq, log_pq + of_weights, 1e-12)
