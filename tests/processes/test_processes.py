"""Functions of a process given its inducing outputs: paths against their definition, moments, joint draws."""

import math

import pytest
import torch

import gilib
from gilib.kernels import RBF, ArcCosine, DotProduct, Matern, White
from gilib.processes import NUGGET, positive
from gilib.randomness import Noise
from tests.kernels.cases import textbook
from tests.support import D, assert_equal, assert_mean, normals, seeded, shaken
from tests.support.oracles import Operations
from tests.support.processes import KERNEL, conditional, covariance, cubature, layer_of, one_layer, precisions

Z, V, X = normals(4, 2, seed=1), normals(4, 2, seed=2), normals(3, 2, seed=3)
KERNELS = {
    "rbf": KERNEL,
    "matern 1/2": Matern((0.8, 1.3), variance=0.7, smoothness=0.5),
    "arc-cosine": ArcCosine(1, (0.8, 1.3), 0.6),
    "rbf and linear": RBF(0.9) + DotProduct(0.5, 0.3),
    "rbf times linear": RBF(0.9) * DotProduct(0.5, 0.3),
}


def process(kernel=KERNEL, precision="full", jitter=0.0, features=16):
    """A network of one process from four inducing points, its pseudo-data shaken."""
    posterior = gilib.GlobalInducing(precision, log_precision=0.5)
    layer = gilib.GP(2, 2, kernel, posterior, jitter=jitter, num_features=features)
    net = gilib.Network(Z, [layer], pseudo_outputs=V, generator=seeded())
    shaken(layer.weights, 0.3)
    return net


def wanted(net, x, output, nugget=0.0, kernel=None):
    """Mean and covariance of (u, f(x)) by the joint Gaussian."""
    layer = layer_of(net)
    v = layer.weights.pseudo.outputs[:, output].detach()
    return conditional(kernel or layer.kernel, Z, x, v, precisions(layer)[output], nugget)


@pytest.mark.parametrize("face", ["draw", "estimate", "joint_draw"])
def test_white_noise_is_every_rows_own(face):
    """At inducing points as a nugget is, at data on the diagonal, even where an inducing point is."""
    net = process(KERNEL + White(0.4), features=4)
    points, source = torch.cat([X, Z[:1]]), seeded(5)
    size = () if face == "draw" else (4,)
    draws = (getattr(net, face)(10_000, *size, generator=source) for _ in range(2))
    values = torch.cat([draw(points).detach() for draw in draws])
    for o in range(2):
        mean, spread = wanted(net, points, o, 0.4, KERNEL)
        spread = spread[4:, 4:] + 0.4 * torch.eye(4, dtype=D)
        deviations = values[..., o] - mean[4:]
        assert_mean(values[..., o], mean[4:])
        if face == "estimate":
            assert_mean(deviations.square(), spread.diagonal())
        else:
            assert_mean(deviations[:, :, None] * deviations[:, None, :], spread)
    moments = net.draw(1, generator=source).moments(points)
    assert moments.variance is not None and bool((moments.variance > 0.4).all())


@pytest.mark.parametrize("jitter", [0.0, 0.05])
def test_a_path_given_its_features(jitter):
    """The process whose kernel is φ(x)ᵀφ(x')/F, corrected by the exact one: all by dense matrices."""
    net = process(jitter=jitter)
    layer = layer_of(net)
    own, features, weights, rest = layer._draw_sizes()
    fixed = normals(1, features, seed=7)
    noise = cubature(own + weights + rest)
    pieces = noise.split([own, weights, rest], -1)
    noise = torch.cat([pieces[0], fixed.expand(len(noise), -1), pieces[1], pieces[2]], -1)
    draw = net.draw(noise=noise)
    values = draw(X).detach()
    phi = layer.hyperparameters().features(torch.cat([Z, X]), fixed.unflatten(-1, (16, -1)))[0].detach() / 4.0
    nugget = jitter * KERNEL.variance
    gain = textbook(KERNEL, X, Z) @ torch.linalg.inv(textbook(KERNEL, Z, Z) + nugget * torch.eye(4, dtype=D))
    residual = phi[4:] - gain @ phi[:4]
    for o in range(2):
        mean, spread = wanted(net, X, o, nugget)
        expected = residual @ residual.mT + nugget * gain @ gain.mT + gain @ spread[:4, :4] @ gain.mT
        assert_equal(values[..., o].mean(0), gain @ mean[:4], 1e-9)
        assert_equal(covariance(values[..., o]), expected, 1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_a_path_passes_through_its_inducing_outputs(name):
    """At the inducing inputs it is u: without jitter to rounding, with a tiny one to its root."""
    if name == "rbf and linear":
        draw = process(KERNELS[name], jitter=1e-12).draw(5, generator=seeded(1))
        assert_equal(draw(Z).detach(), draw.inducing_outputs.detach(), 1e-4)
    draw = process(KERNELS[name]).draw(5, generator=seeded(1))
    tolerance = 1e-6 if "matern" in name else 1e-9  # of which distances of 1e-8 are not zero
    assert_equal(draw(Z).detach(), draw.inducing_outputs.detach(), tolerance)


def test_moments_of_a_path_are_the_estimates():
    """With the same u: what is left of the variance at a point, in place of the path's own share."""
    net = process(jitter=0.01)
    layer = layer_of(net)
    noise = net.base_noise(6, seeded(2))
    draw = net.draw(noise=noise)
    own = noise[:, : layer.weights.noise_size]
    estimate = net.estimate(noise=Noise(own, normals(6, 3, 2)))
    for ours, theirs in zip(draw.moments(X), estimate.moments(X), strict=True):
        assert_equal(ours.detach(), theirs.detach(), 1e-12)
        assert ours.shape == (6, 3, 2)
    mean, variance = estimate.moments(X)
    assert_equal(estimate(X).detach(), (mean + variance.sqrt() * normals(6, 3, 2)).detach(), 1e-12)


@pytest.mark.parametrize("face", ["estimate", "joint_draw"])
def test_noise_is_for_as_many_points_as_were_said(face):
    drawn = getattr(process(), face)(2, 5, generator=seeded())
    assert drawn(normals(5, 2)).shape == (2, 5, 2)
    with pytest.raises(ValueError, match="was made for 5 points, not for 3: make one with num_points=3"):
        drawn(X)


def test_points_that_coincide_have_one_value_in_a_joint_draw():
    """But for the nugget, a variance of 1e-10 for each; its moments are its values."""
    points = torch.cat([X, X])
    joint = process().joint_draw(50, 6, generator=seeded(1))
    values, (mean, variance) = joint(points).detach(), joint.moments(points)
    assert variance is None and torch.equal(mean, values)
    gap = (values[:, :3] - values[:, 3:]).abs()
    assert float(gap.max()) < 6 * math.sqrt(2 * NUGGET * KERNEL.variance)
    estimate = process().estimate(50, 6, generator=seeded(1))(points).detach()
    assert float((estimate[:, :3] - estimate[:, 3:]).abs().min(0).values.max()) > 1e-4


def test_one_factorisation_for_all_samples_at_the_first_layer():
    """K of inputs that are not drawn is factorised once; H = Id + Rᵀ Λ R once, too."""
    for net, times in ((one_layer(gilib.FreeGaussian(4), inducing=Z, jitter=1e-6), 1), (process(), 2)):
        with Operations() as count:
            net.estimate(10, 3)(X)
        assert [math.prod(shape[:-2]) for shape in count.factorised] == [1] * times


@pytest.mark.parametrize("prior", [1.0, 1e-9, 0.0])
def test_a_variance_that_rounding_took_below_zero_has_a_slope(prior):
    variance = torch.tensor([-1e-9, 0.0], dtype=D).requires_grad_()
    positive(variance, torch.full((2,), prior, dtype=D)).sqrt().sum().backward()
    assert bool(variance.grad.isfinite().all())


@pytest.mark.parametrize("unit", [1e-5, 1e5])
@pytest.mark.parametrize("model", [gilib.models.sparse_gp, gilib.models.structured_gp])
def test_variances_have_the_units_of_the_kernel(model, unit):
    """What rounding may leave of them is measured by the kernel's variance, in float32 too."""
    depth = {"depth": 1} if model is gilib.models.structured_gp else {}
    points, x = Z.float(), torch.cat([Z, X]).float()
    nets = (
        model(2, 1, inducing_points=points, kernel=RBF(variance=scale**2), generator=seeded(), **depth)
        for scale in (1.0, unit)
    )
    one, other = (shaken(net, 0.3).estimate(1, len(x), generator=seeded(2)).marginals(x) for net in nets)
    torch.testing.assert_close(other.variance / unit**2, one.variance, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(other.mean / unit, one.mean, rtol=1e-3, atol=1e-5)
