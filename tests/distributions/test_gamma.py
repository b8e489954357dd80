"""Gamma variables from normals: values, derivatives, precision, vmap, and no branch that depends on data."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from gilib.distributions import gamma_from_normal, log_gamma_from_normal

D = torch.float64
CONCENTRATIONS = [0.05, 0.1, 0.3, 0.5, 0.9, 1.0, 1.1, 2.5, 9.9, 10.1, 30.0, 405.0, 1e4, 1e5]


def scipy_quantile(a, z):
    """The quantile from the nearer tail, so that neither loses digits."""
    lower = scipy.special.gammaincinv(a, scipy.special.ndtr(z))
    upper = scipy.special.gammainccinv(a, scipy.special.ndtr(-z))
    return np.where(z < 0, lower, upper)


def with_gradients(a, z):
    """The variables and their derivatives in a and z, elementwise."""
    a = torch.full_like(z, a).requires_grad_()
    z = z.clone().requires_grad_()
    s = gamma_from_normal(a, z)
    return s.detach(), *torch.autograd.grad(s.sum(), (a, z))


@pytest.mark.parametrize("a", CONCENTRATIONS)
def test_values_and_gradients_in_the_normal_against_scipy(a):
    z = torch.linspace(-6, 6, 97, dtype=D)
    oracle = scipy_quantile(a, z.numpy())
    np.testing.assert_allclose(gamma_from_normal(a, z), oracle, rtol=1e-10, atol=0)
    np.testing.assert_allclose(log_gamma_from_normal(a, z), np.log(oracle), rtol=1e-10, atol=1e-10)
    s, _, in_z = with_gradients(a, z[16:-16])
    density = scipy.stats.gamma.pdf(s.numpy(), a)
    np.testing.assert_allclose(in_z, scipy.stats.norm.pdf(z[16:-16].numpy()) / density, rtol=1e-9)


def test_tiny_and_huge_concentrations():
    """By the leading term, exact up to s itself, where s underflows; by Cornish's and Fisher's expansion."""
    z = torch.linspace(-6, 1, 50, dtype=D)
    for a in (1e-5, 1e-4, 1e-3):
        leading = (torch.special.log_ndtr(z) + scipy.special.gammaln(a + 1)) / a
        assert leading.max() < -170
        torch.testing.assert_close(log_gamma_from_normal(a, z), leading, rtol=1e-12, atol=0)
    a, z = 1e10, torch.linspace(-6, 6, 25, dtype=D)
    expansion = a + z * a**0.5 + (z**2 - 1) / 3 + (z**3 - 7 * z) / (36 * a**0.5)  # next term below 1e-8
    torch.testing.assert_close(gamma_from_normal(a, z), expansion, rtol=1e-15, atol=0)


@pytest.mark.parametrize("a", [0.05, 0.5, 1.0, 3.3, 30.0, 205.0, 1e5])
def test_gradient_in_concentration_by_exact_expectations(a):
    """E s = a, E s² = a + a² and E log s = ψ(a), differentiated in a under the trapezoidal rule over z."""
    z = torch.arange(-12, 12, 0.005, dtype=D)
    weight = 0.005 * torch.exp(-0.5 * z**2) / (2 * np.pi) ** 0.5
    s, in_a, _ = with_gradients(a, z)
    assert float((weight * in_a).sum()) == pytest.approx(1.0, rel=1e-11)
    assert float((weight * 2 * s * in_a).sum()) == pytest.approx(1 + 2 * a, rel=1e-11)
    a_grad = torch.full_like(z, a).requires_grad_()
    (log_in_a,) = torch.autograd.grad(log_gamma_from_normal(a_grad, z).sum(), a_grad)
    assert float((weight * log_in_a).sum()) == pytest.approx(scipy.special.polygamma(1, a), rel=1e-11)


@pytest.mark.parametrize("function", [gamma_from_normal, log_gamma_from_normal])
def test_gradcheck_twice_with_broadcasting(function):
    a = torch.tensor([[0.3], [1.0], [12.0]], dtype=D, requires_grad=True)
    z = torch.tensor([-2.5, -0.4, 0.1, 3.0], dtype=D, requires_grad=True)
    assert torch.autograd.gradcheck(function, (a, z))
    assert torch.autograd.gradgradcheck(function, (a, z))


def test_vmap_equals_loop_for_values_and_gradients():
    generator = torch.Generator().manual_seed(0)
    a = torch.tensor([0.2, 1.5, 40.0], dtype=D)
    z = torch.randn(3, 5, generator=generator, dtype=D)

    def total(concentration, noise):
        return gamma_from_normal(concentration, noise).square().sum()

    for function in (gamma_from_normal, torch.func.grad(total, argnums=0), torch.func.grad(total, argnums=1)):
        mapped = torch.func.vmap(function)(a, z)
        torch.testing.assert_close(mapped, torch.stack([function(*pair) for pair in zip(a, z, strict=True)]))
        shared = torch.func.vmap(function, in_dims=(None, 0))(a[1], z)
        torch.testing.assert_close(shared, torch.stack([function(a[1], row) for row in z]))


def test_float32_is_float64_rounded():
    z = torch.linspace(-5, 5, 21)
    a = torch.tensor(0.75)
    for function in (gamma_from_normal, log_gamma_from_normal):
        assert function(a, z).dtype == torch.float32
        torch.testing.assert_close(function(a, z), function(a.double(), z.double()).float(), rtol=0, atol=0)
    a.requires_grad_()
    (gradient,) = torch.autograd.grad(gamma_from_normal(a, z).sum(), a)
    exact = with_gradients(0.75, z.double())[1].sum()
    torch.testing.assert_close(gradient, exact.float())


def test_nothing_reads_the_data():
    """Meta tensors hold none, so that a read would raise; concentrations that are not positive give NaN."""
    a = torch.ones(3, device="meta", requires_grad=True)
    s = gamma_from_normal(a, torch.zeros(4, 3, device="meta"))
    s.sum().backward()
    assert s.shape == (4, 3) and a.grad.shape == (3,)
    for function in (gamma_from_normal, log_gamma_from_normal):
        found = function(torch.tensor([-1.0, 0.0, 1.0], dtype=D), torch.zeros(3, dtype=D))
        assert found.isnan().tolist() == [True, True, False]
        for z, kind in ((torch.zeros(2, dtype=torch.int64), "torch.int64"), (0.5, "float")):
            with pytest.raises(TypeError, match=f"a floating-point tensor of standard normals, got {kind}"):
                function(1.0, z)
