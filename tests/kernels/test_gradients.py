"""Gradients of kernels: by finite differences, where points meet, and in float32 at extreme lengthscales."""

import pytest
import torch

from gilib.kernels import RBF, DotProduct, Matern
from tests.kernels.cases import INPUTS, KERNELS, ROUGH, function, module, textbook
from tests.support import assert_equal, normals

A, B = normals(3, INPUTS, seed=1), normals(4, INPUTS, seed=2)
UNIT = 2.0**-24  # a rounding to float32


def check(kernel, call, *points):
    """Finite differences in the points and in every hyper-parameter."""
    built = module(kernel)
    names, values = zip(*built.named_parameters(), strict=True)

    def value(*inputs):
        own = dict(zip(names, inputs[len(points) :], strict=True))
        return call(lambda: torch.func.functional_call(built, own, ()), *inputs[: len(points)])

    inputs = [x.clone().requires_grad_() for x in (*points, *values)]
    return torch.autograd.gradcheck(value, inputs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_finite_differences(name):
    """Of smooth kernels also where points meet: data at an inducing input, and two inducing inputs."""
    noise = normals(1, 4, function(KERNELS[name]).feature_noise, seed=3)
    z, x = (A, B) if name in ROUGH else (torch.cat([A, A[:1]]), torch.cat([B, A[:2]]))
    assert check(KERNELS[name], lambda kernel, a, b: kernel().cross(a, b), z, x)
    assert check(KERNELS[name], lambda kernel, a: kernel().gram(a), z)
    assert check(KERNELS[name], lambda kernel, a: kernel().diagonal(a).expand(3), A)
    assert check(KERNELS[name], lambda kernel, a: kernel().features(a, noise), A)


@pytest.mark.parametrize("name", ROUGH)
def test_rough_kernels_pull_at_nothing_where_points_meet(name):
    """No derivative exists there: the gradient is that of the other pairs."""
    weights = normals(4, 6, seed=4)
    meet = torch.zeros(4, 6, dtype=torch.bool)
    meet[0, 4] = meet[1, 5] = meet[3, 4] = True

    def gradients(values, *points):
        return torch.autograd.grad((values * weights).sum(), points)

    z, x = torch.cat([A, A[:1]]).requires_grad_(), torch.cat([B, A[:2]]).requires_grad_()
    found = gradients(function(KERNELS[name]).cross(z, x), z, x)
    for m, n in meet.nonzero():
        weights[m, n] = 0.0
    pairs = [
        textbook(KERNELS[name], z[m : m + 1], x[n : n + 1]).sum() * weights[m, n]
        for m in range(4)
        for n in range(6)
        if not meet[m, n]
    ]
    wanted = torch.autograd.grad(torch.stack(pairs).sum(), (z, x))
    for ours, theirs in zip(found, wanted, strict=True):
        assert_equal(ours, theirs, 1e-6)


def scene(lengthscale):
    """Inducing inputs, and data within a lengthscale of them; two coincide. Float32 numbers, in float64."""
    z = 3.0 * normals(6, INPUTS, seed=5)
    near = z[:, None] + 0.5 * lengthscale * normals(6, 3, INPUTS, seed=6)
    x = torch.cat([near.flatten(0, 1), z[:2], normals(5, INPUTS, seed=7)])
    return z.float().double(), x.float().double(), normals(6, len(x), seed=8).float().double()


def pulls(kernel, z, x, weights):
    """Gradients of Σ c_mn k(z_m, x_n) with respect to z, x and the logarithms of the hyper-parameters."""
    built = module(kernel, dtype=z.dtype)
    z, x = z.clone().requires_grad_(), x.clone().requires_grad_()
    value = (built().cross(z, x) * weights).sum()
    return [g.double() for g in torch.autograd.grad(value, (z, x, *built.parameters()))]


def by_differences(kernel, z, x, weights):
    """The gradient with respect to z by the textbook, `[M, N, D]` one term a pair; and the values."""
    pairs = [z[:, None, :].expand(-1, len(x), -1), x[None].expand(len(z), -1, -1)]
    left, right = (p.reshape(-1, 1, INPUTS).clone().requires_grad_() for p in pairs)
    values = textbook(kernel, left, right)[:, 0, 0]
    gradient, _ = torch.autograd.grad((values * weights.flatten()).sum(), (left, right))
    gradient = gradient.nan_to_num(0.0).reshape(len(z), len(x), INPUTS)
    return gradient, values.detach().reshape(weights.shape)


@pytest.mark.parametrize("lengthscale", [0.01, 100.0])
@pytest.mark.parametrize("kind", ["rbf", "matern 1/2", "matern 3/2", "matern 5/2", "product"])
def test_float32_points_at_extreme_lengthscales(kind, lengthscale):
    """The error of a gradient is a few roundings of its terms, never those of squared coordinates.

    A value is rounded to float32, and its exponent e before: a relative error of (|e| + 4)/2²⁴ in each term
    c_mn ∂k/∂z. In float64 distances that cancel leave √2⁻⁵² where points meet, in units of c/ℓ.
    """
    spec = {
        "rbf": RBF(lengthscale),
        "product": RBF(lengthscale) * DotProduct(),
        **{f"matern {k}/2": Matern(lengthscale, smoothness=k / 2) for k in (1, 3, 5)},
    }[kind]
    z, x, weights = scene(lengthscale)
    found = pulls(spec, z.float(), x.float(), weights.float())
    terms, values = by_differences(spec, z, x, weights)
    exponents = 1 + (values.abs() / values.abs().max()).clamp_min(1e-30).log().abs()
    allowed = (exponents[..., None] + 8) * terms.abs() * UNIT + 1e-7 * weights.abs()[..., None] / lengthscale
    assert ((found[0] - terms.sum(1)).abs() <= allowed.sum(1)).all()
    exact = pulls(spec, z, x, weights)
    assert ((exact[0] - terms.sum(1)).abs() <= 1e-7 * (weights.abs().sum(1) / lengthscale)[:, None]).all()
    for ours, theirs in zip(found[1:], exact[1:], strict=True):
        assert_equal(ours, theirs, 1e-4 * max(1.0, float(theirs.abs().max())))
