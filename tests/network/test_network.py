"""A network draws functions: what a draw promises, log_pq, its gradient, replicas, and exact cases."""

import math

import pytest
import torch
from torch import nn

import gilib
from tests.support import (
    PAIRS,
    POSTERIORS,
    PRECISIONS,
    PRIORS,
    D,
    assert_equal,
    assert_mean,
    log_evidence,
    normals,
    ridge,
    seeded,
    small_net,
    with_ones,
)

MIXED = {
    "fac→gi": (gilib.Factorised(), gilib.GlobalInducing()),
    "rand→gi": (gilib.FromPrior(), gilib.GlobalInducing()),
    "li→gi": (gilib.LocalInducing(num_inducing=4), gilib.GlobalInducing()),
    "gi→fac": (gilib.GlobalInducing(), gilib.Factorised()),
    "mvg": gilib.posteriors.MatrixGaussian(3.0),
}
EVERY = {**POSTERIORS, **MIXED}
WITH_PRIORS = pytest.mark.parametrize(
    ("name", "prior"), [*PAIRS, *((name, prior) for name in MIXED for prior in ("neal", "spatial"))]
)


@pytest.mark.parametrize("name", EVERY)
def test_a_draw_is_a_function_and_a_function_of_its_noise(name):
    net = small_net(EVERY[name], PRIORS["scale"])
    x, noise = normals(7, 2), net.base_noise(5, seeded(1))
    assert noise.shape == (5, net.noise_size) and noise.dtype == D
    draws = [net.draw(noise=noise), net.draw(noise=noise), net.draw(5, generator=seeded(1))]
    outputs = draws[0](x)
    assert outputs.shape == (5, 7, 2) and draws[0].log_pq.shape == (5,)
    assert_equal(outputs, torch.cat([draws[0](part) for part in x.split(3)], 1).detach())
    for draw in draws:
        assert torch.equal(draw(x), outputs)
        assert torch.equal(draw.log_pq, draws[0].log_pq)
    assert not torch.equal(net.draw(5, generator=seeded(2))(x), outputs)
    assert_equal(net.draw(noise=noise[2:4])(x), outputs[2:4].detach())


def test_drawing_and_evaluating_leave_no_trace():
    state, net = torch.get_rng_state(), small_net(gilib.GlobalInducing(), PRIORS["spatial"])
    before = {name: set(vars(module)) for name, module in net.named_modules()}
    net.draw(2, generator=seeded(1))(normals(3, 2))
    assert before == {name: set(vars(module)) for name, module in net.named_modules()}
    assert torch.equal(state, torch.get_rng_state())


@WITH_PRIORS
def test_log_pq_is_the_sum_over_layers_that_see_what_was_drawn_below(name, prior):
    net = small_net(EVERY[name], PRIORS[prior], hidden=(3, 4))
    noise = net.base_noise(3, seeded(1))
    pieces = noise.split([layer.noise_size for layer in net.layers], -1)
    inducing, x, total = net.inducing_points, normals(4, 2), torch.zeros(3, dtype=D)
    if inducing is None:
        inducing = normals(5, 2)
    for layer, piece in zip(net.layers, pieces, strict=True):
        function, log_pq = layer.draw(inducing, noise=piece)
        inducing, x, total = function(inducing), function(x), total + log_pq
    draw = net.draw(noise=noise)
    assert_equal(draw.log_pq, total.detach())
    assert_equal(draw(normals(4, 2)), x.detach())


@WITH_PRIORS
def test_gradients_by_finite_differences(name, prior):
    """Of the bound, along one direction: no part of it, of prior or posterior, is without its gradient."""
    net, likelihood = small_net(EVERY[name], PRIORS[prior]), gilib.Gaussian(0.3)
    x, y, noise = normals(6, 2, seed=4), normals(6, 2, seed=5), net.base_noise(3, seeded(1))
    parameters = list(net.parameters())
    ways = [normals(*parameter.shape, seed=k) for k, parameter in enumerate(parameters)]

    def bound(step):
        with torch.no_grad():
            for parameter, way in zip(parameters, ways, strict=True):
                parameter += step * way
        return gilib.elbo(net.draw(noise=noise), likelihood, x, y, num_data=6)

    if parameters:
        gradients = torch.autograd.grad(bound(0.0), parameters)
        slope = sum((gradient * way).sum() for gradient, way in zip(gradients, ways, strict=True))
        above, below = bound(1e-5).detach(), bound(-2e-5).detach()
        assert_equal((above - below) / 2e-5, slope, 1e-6)


def test_a_failed_factorisation_names_the_layer():
    net = small_net(gilib.GlobalInducing())
    with torch.no_grad():
        list(net.layers)[2].weights.pseudo.scaled_log_precision.fill_(torch.nan)
    with pytest.raises(gilib.linalg.FactorisationError, match=r"layer 2, Linear\(3 → 2\): the posterior"):
        net.draw(2)


def test_noise_follows_the_network_where_no_parameter_tells():
    """A network drawn from its prior has no parameters, and yet a dtype and a device."""
    net = gilib.models.mlp(2, (3,), 1, posterior=gilib.FromPrior(), dtype=D)
    draw = net.draw(2, generator=seeded())
    assert net.base_noise(1).dtype == draw.log_pq.dtype == draw(normals(3, 2)).dtype == D
    assert net.to("meta").base_noise(1).device.type == "meta"


def test_a_layer_stands_in_one_place():
    shared = gilib.Linear(2, 2)
    with pytest.raises(ValueError, match=r"layer 2: Linear\(2 → 2\) is used twice, here or in another"):
        gilib.Network(normals(5, 2), [shared, nn.ReLU(), shared])
    norm = gilib.layers.InducingBatchNorm()
    with pytest.raises(ValueError, match="InducingBatchNorm is used twice"):
        gilib.Network(normals(5, 2), [norm, gilib.Residual([norm])])


@pytest.mark.parametrize(
    "make",
    [
        lambda: [gilib.Linear(2, 2, gilib.Factorised())],
        lambda: [gilib.Linear(2, 2), gilib.Linear(2, 2, gilib.LocalInducing())],
        lambda: [gilib.layers.Sum([gilib.Linear(2, 2), gilib.Linear(2, 2)])],
        lambda: [gilib.Linear(2, 2), gilib.Residual([gilib.Linear(2, 2)])],
    ],
    ids=["factorised", "local", "sum", "residual"],
)
def test_targets_that_nothing_would_start_at_are_refused(make):
    x, y = normals(5, 2), normals(5, 2, seed=1)
    gilib.Network(x, make())
    with pytest.raises(ValueError, match="pseudo_outputs are given, but nothing starts at them: the last"):
        gilib.Network(x, make(), pseudo_outputs=y)


def test_layers_of_a_list_that_does_not_fit_are_free():
    x, first, second = normals(5, 2), gilib.Linear(2, 3), gilib.Linear(4, 2)
    with pytest.raises(ValueError, match="takes points of shape"):
        gilib.Network(x, [first, second])
    with pytest.raises(ValueError, match="needs inducing points"):
        gilib.Network(None, [first], dtype=D)
    net = gilib.Network(x, [first, nn.Tanh(), gilib.Linear(3, 2)])
    assert net.draw(2)(x).shape == (2, 5, 2)
    kept = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ValueError, match="used twice"):
        gilib.Network(x, [first, second])
    with pytest.raises(ValueError, match="used twice"):  # and those of a network stay with it
        gilib.Network(x, [first])
    assert all(torch.equal(value, kept[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("replicas", [(), (5,), (6,)])
def test_inducing_images_are_no_replicas(replicas):
    """As many images as replicas: the first layer, or the reader, knows how many axes a point has."""
    x, first = normals(5, 1, 4, 4), gilib.Conv2d(1, 2, 3)
    net = gilib.Network(x, [first, nn.Flatten(), gilib.Linear(32, 2)], replicas=replicas)
    assert net.inducing_points.shape == (*replicas, 5, 1, 4, 4)
    flat = lambda **settings: gilib.Network(  # noqa: E731
        x, [nn.Flatten(), gilib.Linear(16, 2)], replicas=replicas, **settings
    )
    assert flat(input_shape=(1, 4, 4)).inducing_points.shape == (*replicas, 5, 1, 4, 4)
    if replicas == (5,):
        with pytest.raises(ValueError, match=r"\[5, 1, 4, 4\] may be \[M, ...\] or \[5, M, ...\].*give"):
            flat()
    else:
        assert flat().input_shape == (1, 4, 4)


def test_inducing_images_of_every_replica():
    own, layers = normals(6, 5, 1, 4, 4), lambda: [gilib.Conv2d(1, 2, 3)]
    assert torch.equal(gilib.Network(own, layers(), replicas=(6,)).inducing_points, own)
    with pytest.raises(ValueError, match=r"inducing_points must have shape \[M, ...\] or \[2, M, ...\]"):
        gilib.Network(own, layers(), replicas=(2,))


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


NOISE = 0.07
X = normals(9, 2, seed=1)
Y = normals(9, 2, seed=2) + X.square()
LIKELIHOOD = gilib.Gaussian(NOISE)
# name: prior, and the variance of a weight as a function of the fan-in
FIXED = {
    "neal": (gilib.NealPrior(scale=1.7), lambda fan_in: 1.7**2 / fan_in),
    "standard": (gilib.StandardPrior(), lambda fan_in: 1.0),
}


def exact_net(prior, precision="shared", bias=True):
    """Bayesian linear regression whose inducing points are the data, pseudo-outputs as noisy as they."""
    posterior = gilib.GlobalInducing(precision=precision, log_precision=-math.log(NOISE))
    settings = {"bias": bias, "inducing_points": X, "pseudo_outputs": Y}
    return gilib.models.mlp(2, (), 2, posterior=posterior, prior=prior, **settings)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", FIXED)
def test_every_draws_elbo_and_the_iwbo_are_the_log_evidence(name, precision, bias):
    """In a float32 default, with a noise that must not pass through it."""
    assert torch.get_default_dtype() == torch.float32
    prior, variance = FIXED[name]
    features = with_ones(X) if bias else X
    truth = log_evidence(features, Y, variance(features.shape[-1]), NOISE)
    draw = exact_net(prior, precision, bias).draw(20, generator=seeded(3))
    for likelihood in (LIKELIHOOD, gilib.Gaussian(NOISE, learn=True)):
        bounds = gilib.elbo(draw, likelihood, X, Y, num_data=len(X), reduction="none")
        assert_equal(bounds.detach(), truth.expand(20), 1e-9)
        assert_equal(gilib.iwbo(draw, likelihood, X, Y).detach(), truth, 1e-9)


def test_predictions_are_those_of_ridge_regression():
    net = exact_net(gilib.NealPrior())
    mean, covariance = ridge(with_ones(X), Y, 3.0, NOISE)
    points = normals(6, 2, seed=5)
    prediction = gilib.predict(net, LIKELIHOOD, points, num_samples=4000, generator=seeded(4))
    truth = with_ones(points) @ mean
    variance = ((with_ones(points) @ covariance) * with_ones(points)).sum(-1, keepdim=True).expand(6, 2)
    squares = (prediction.means - truth).square()
    assert_mean(prediction.means, truth)
    assert_mean(squares, variance)
    standard_error = squares.std(0) / math.sqrt(4000)
    assert ((prediction.sd.square() - variance - NOISE).abs() < 6 * standard_error).all()
