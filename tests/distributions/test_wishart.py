"""Wishart, inverse Wishart, and the gamma variables from normals that they are drawn by."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch.distributions import kl_divergence

from gilib.distributions import InverseWishart, Wishart, gamma_from_normal, log_gamma_from_normal
from gilib.linalg import FactorisationError
from tests.support import D, normals, seeded

BOTH = pytest.mark.parametrize("family", [Wishart, InverseWishart])
ORACLES = {Wishart: scipy.stats.wishart, InverseWishart: scipy.stats.invwishart}
BATCHES = pytest.mark.parametrize("batch", [(), (2, 3)])


def positive_definite(size, batch=(), seed=0):
    root = normals(*batch, size, size, seed=seed)
    return root @ root.mT / size + 0.5 * torch.eye(size, dtype=D)


def within_six_standard_errors(draws, mean, variance):
    """Whether the mean of the draws (first axis) is where its known variance allows."""
    return ((draws.mean(0) - mean).abs() <= 6 * (variance / len(draws)).sqrt()).all()


@BOTH
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("excess", [0.4, 1.7, 30.3])
def test_density_and_moments_against_scipy(family, size, excess):
    df, scale, value = size - 1 + excess, positive_definite(size), positive_definite(size, (6,), seed=1)
    ours, oracle = family(df, scale), ORACLES[family](df, scale.numpy())
    expected = torch.tensor([oracle.logpdf(x) for x in value.numpy()], dtype=D)
    torch.testing.assert_close(ours.log_prob(value), expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(
        ours.log_prob_cholesky(torch.linalg.cholesky(value)), expected, rtol=1e-11, atol=1e-11
    )
    if family is Wishart or df > size + 3:
        np.testing.assert_allclose(ours.mean, oracle.mean(), rtol=1e-12)
        np.testing.assert_allclose(ours.variance, oracle.var(), rtol=1e-12)
    if family is InverseWishart or df > size + 1:
        np.testing.assert_allclose(ours.mode, oracle.mode(), rtol=1e-12)


def test_moments_that_do_not_exist_are_nan():
    scale = torch.eye(3, dtype=D)
    df = torch.tensor([3.9, 4.5, 6.5], dtype=D)
    assert InverseWishart(df, scale).mean.isnan().all(-1).all(-1).tolist() == [True, False, False]
    assert InverseWishart(df, scale).variance.isnan().all(-1).all(-1).tolist() == [True, True, False]
    assert Wishart(df, scale).mode.isnan().all(-1).all(-1).tolist() == [True, False, False]


def test_how_the_noise_enters():
    """The documented convention, written out for 2 × 2 matrices."""
    noise, df, root = normals(2, 2), 2.6, torch.linalg.cholesky(positive_definite(2))

    def factor(first, second):
        roots = [(2 * gamma_from_normal(c, noise[j, j])).sqrt() for j, c in enumerate((first, second))]
        return torch.stack([roots[0], torch.zeros((), dtype=D), noise[1, 0], roots[1]]).reshape(2, 2)

    drawn = Wishart(df, scale_tril=root).rsample_cholesky(noise=noise)
    torch.testing.assert_close(drawn, root @ factor(df / 2, (df - 1) / 2))
    drawn = InverseWishart(df, scale_tril=root).rsample_cholesky(noise=noise)
    torch.testing.assert_close(drawn, root @ torch.linalg.inv(factor((df - 1) / 2, df / 2)))


@BOTH
@BATCHES
@pytest.mark.parametrize("sample_shape", [(), (5,), (2, 1)])
def test_shapes_and_batches(family, batch, sample_shape):
    df = 2.5 + torch.rand(batch, generator=torch.Generator().manual_seed(3), dtype=D)
    scale, noise = positive_definite(3, batch), normals(*sample_shape, *batch, 3, 3)
    dist = family(df, scale)
    assert (dist.batch_shape, dist.event_shape) == (batch, (3, 3))
    factor = dist.rsample_cholesky(sample_shape, noise)
    assert factor.shape == (*sample_shape, *batch, 3, 3)
    assert (factor.triu(1) == 0).all() and (factor.diagonal(dim1=-2, dim2=-1) > 0).all()
    torch.testing.assert_close(dist.rsample(sample_shape, noise), factor @ factor.mT)
    torch.testing.assert_close(dist.rsample(noise=noise), factor @ factor.mT)
    log_prob = dist.log_prob_cholesky(factor)
    assert log_prob.shape == (*sample_shape, *batch)
    for index in np.ndindex(*batch):
        one, here = family(df[index], scale[index]), (..., *index, slice(None), slice(None))
        torch.testing.assert_close(one.rsample_cholesky(noise=noise[here]), factor[here])
        torch.testing.assert_close(one.log_prob_cholesky(factor[here]), log_prob[(..., *index)])


@BOTH
def test_parameters_broadcast_and_expand(family):
    df, scale = torch.tensor([2.5, 7.0], dtype=D), positive_definite(2, (3, 1))
    dist = family(df, scale)
    assert dist.batch_shape == (3, 2) and dist.scale_tril.shape == (3, 2, 2, 2)
    torch.testing.assert_close(dist.scale, scale.expand(3, 2, 2, 2))
    wide = dist.expand((4, 3, 2))
    assert type(wide) is family and wide.batch_shape == (4, 3, 2)
    noise = normals(4, 3, 2, 2, 2)
    torch.testing.assert_close(wide.rsample(noise=noise), dist.rsample(noise=noise))
    assert family(torch.tensor(4), scale).df.dtype == D


@BOTH
def test_draws_come_from_the_generator_alone(family):
    dist, state = family(3.5, positive_definite(3)), torch.get_rng_state()
    first, second = (dist.rsample((2,), generator=seeded(7)) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    third = dist.sample((2,), generator=seeded(7))
    torch.testing.assert_close(first, third, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert dist.sample((2,)).shape == (2, 3, 3)


@BOTH
@pytest.mark.parametrize("df", [2.3, 7.1, 20.0])
def test_moments_of_draws(family, df):
    """Those of X and of Ω⁻¹ ~ W(Ψ⁻¹, ν), of log |X|, and of Ω, whose variance exists for ν > p + 3 only."""
    dist = family(df, positive_definite(3))
    factor = dist.rsample_cholesky(noise=normals(3000, 3, 3))
    inverse = family is InverseWishart
    law = Wishart(df, torch.linalg.inv(dist.scale)) if inverse else dist
    drawn = torch.cholesky_inverse(factor) if inverse else factor @ factor.mT
    assert within_six_standard_errors(drawn, law.mean, law.variance)
    half = (df - np.arange(3)) / 2
    mean = scipy.special.digamma(half).sum() + 3 * np.log(2) + float(torch.logdet(law.scale))
    log_det = (-2 if inverse else 2) * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    assert within_six_standard_errors(log_det, mean, torch.tensor(scipy.special.polygamma(1, half).sum()))
    if inverse and df > 6:
        assert within_six_standard_errors(factor @ factor.mT, dist.mean, dist.variance)


@BOTH
def test_gradients_of_draws_densities_and_divergences(family):
    noise, value = normals(2, 3, 3), positive_definite(3, (2,), seed=1)
    other = family(5.4, positive_definite(3, seed=1))

    def of(df, root):
        return family(df, scale_tril=root.tril())

    def from_scale(df, root):
        return family(df, scale=root.tril() @ root.tril().mT).rsample(noise=noise)

    for function in (
        lambda df, root: of(df, root).rsample(noise=noise),
        lambda df, root: of(df, root).log_prob(value),
        lambda df, root: (kl_divergence(of(df, root), other), kl_divergence(other, of(df, root))),
        from_scale,
    ):
        df = torch.tensor(2.7, dtype=D, requires_grad=True)
        root = torch.linalg.cholesky(positive_definite(3)).requires_grad_()
        assert torch.autograd.gradcheck(function, (df, root))


@BOTH
@pytest.mark.parametrize("argument", [0, 1])
def test_vmap_equals_loop(family, argument):
    df, root = torch.tensor([2.2, 3.0, 8.0], dtype=D), torch.linalg.cholesky(positive_definite(3, (3,)))
    noise = normals(3, 3, 3)

    def log_ratio(df, root, noise):
        dist = family(df, scale_tril=root.tril(), validate_args=False)
        factor = dist.rsample_cholesky(noise=noise)
        base = family(4.0, scale=torch.eye(3, dtype=D), validate_args=False)
        return base.log_prob_cholesky(factor) - dist.log_prob_cholesky(factor)

    for function in (log_ratio, torch.func.grad(log_ratio, argnums=argument)):
        looped = torch.stack([function(*one) for one in zip(df, root, noise, strict=True)])
        torch.testing.assert_close(torch.func.vmap(function)(df, root, noise), looped)


@BOTH
def test_without_validation_nothing_reads_the_data_and_factors_are_named(family):
    """Meta tensors hold no data, so any read or branch on it would raise."""
    dist = family(4.0, scale=torch.ones(2, 3, 3, device="meta"), validate_args=False)
    factor = dist.rsample_cholesky((5,))
    assert factor.shape == (5, 2, 3, 3) and dist.log_prob(factor @ factor.mT).shape == (5, 2)
    with pytest.raises(FactorisationError, match="the scale matrix is not positive definite"):
        family(4.0, -torch.eye(3), validate_args=False)
    with pytest.raises(FactorisationError, match="the value is not positive definite"):
        family(4.0, torch.eye(3), validate_args=False).log_prob(-torch.eye(3))


@BOTH
def test_float32(family):
    noise, scale = normals(50, 3, 3), positive_definite(3)
    exact, rounded = family(3.5, scale), family(3.5, scale.float())
    draw = rounded.rsample_cholesky(noise=noise.float())
    assert draw.dtype == torch.float32
    torch.testing.assert_close(draw.double(), exact.rsample_cholesky(noise=noise), rtol=1e-3, atol=1e-4)


def test_divergences_against_torch():
    """Inversion leaves them as they are."""
    parameters = (3.7, positive_definite(3)), (5.4, positive_definite(3, seed=1))
    oracle = kl_divergence(*(torch.distributions.Wishart(*given) for given in parameters))
    torch.testing.assert_close(kl_divergence(*(Wishart(*given) for given in parameters)), oracle)
    inverses = (InverseWishart(df, torch.linalg.inv(scale)) for df, scale in parameters)
    torch.testing.assert_close(kl_divergence(*inverses), oracle)


@BOTH
def test_divergence_of_equals_and_in_batches(family):
    df, scale = torch.tensor([[2.5], [9.0]], dtype=D), positive_definite(3, (4,))
    p = family(df, scale)
    torch.testing.assert_close(kl_divergence(p, p), torch.zeros(2, 4, dtype=D), rtol=0, atol=1e-12)
    q = family(5.0, positive_definite(3, seed=1))
    one = torch.stack([torch.stack([kl_divergence(family(d[0], s), q) for s in scale]) for d in df])
    assert (one > 0).all()
    torch.testing.assert_close(kl_divergence(p, q), one)


EYE = torch.eye(3)
LOWER = torch.ones(3, 3).tril(-1)


def with_noise(sample_shape, *shape):
    return lambda family: family(4.0, EYE.expand(4, 3, 3)).rsample(sample_shape, noise=torch.zeros(shape))


REFUSED = {
    "df on the border": (lambda family: family(2.0, EYE), r"df must exceed p - 1 = 2 for 3 × 3"),
    "one df of two": (lambda family: family(torch.tensor([4.0, 2.0]), EYE), "df must exceed .* got 2.0"),
    "no scale": (lambda family: family(4.0), "exactly one of scale and scale_tril, got neither"),
    "two scales": (lambda family: family(4.0, EYE, EYE), "exactly one of scale and scale_tril, got both"),
    "not square": (lambda family: family(4.0, scale_tril=EYE[:, :2]), r"scale_tril must .* got \[3, 2\]"),
    "empty": (lambda family: family(4.0, torch.ones(2, 0, 0)), r"scale must have shape .* got \[2, 0, 0\]"),
    "indefinite": (lambda family: family(4.0, EYE - 2 * EYE[0].diag()), "its smallest eigenvalue is -1"),
    "triangular": (lambda family: family(4.0, EYE + LOWER), "symmetric; pass a triangular factor as"),
    "full factor": (lambda family: family(4.0, scale_tril=EYE + LOWER.mT), "scale_tril must be lower"),
    "batches": (
        lambda family: family(torch.tensor([4.0, 5.0]), EYE.expand(5, 3, 3)),
        r"df has shape \[2\], which does not broadcast with \[5\]",
    ),
    "noise of two axes": (with_noise((), 2, 2), r"noise must have shape \[..., 4, 3, 3\], got \[2, "),
    "noise of no batch": (with_noise((), 3, 3), r"noise must have shape \[..., 4, 3, 3\]"),
    "noise of no samples": (with_noise((7,), 4, 3, 3), r"noise must have shape \[7, 4, 3, 3\]"),
    "value": (lambda family: family(4.0, EYE).log_prob(-EYE), "support"),
    "size of a value": (lambda family: family(4.0, EYE).log_prob(EYE[:2, :2]), "event_shape"),
    "value for a factor": (
        lambda family: family(4.0, EYE).log_prob_cholesky(EYE + LOWER.mT),
        r"factor must hold lower triangular matrices \[..., 3, 3\]",
    ),
    "two sizes": (
        lambda family: kl_divergence(family(4.0, EYE), family(4.0, EYE[:2, :2])),
        "KL needs matrices of one size",
    ),
}


@BOTH
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(family, name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call(family)


M, NU = 3, 4.6


def triangular(entries):
    """A lower triangular matrix (the paper's T, transposed) from its entries row by row."""
    rows, columns = torch.tril_indices(M, M)
    return torch.zeros(M, M, dtype=D).index_put((rows, columns), entries)


def bartlett_log_density(t, nu):
    """Eq. 54 for a lower triangular t."""
    total = torch.zeros((), dtype=D)
    for j in range(1, M + 1):
        diagonal = t[j - 1, j - 1]
        total += (nu - j) * diagonal.log() - diagonal**2 / 2
        total -= (nu - j - 1) / 2 * math.log(2) + math.lgamma((nu - j + 1) / 2)
        total -= (t[j:, j - 1] ** 2 / 2 + math.log(2 * math.pi) / 2).sum()
    return total


@pytest.mark.parametrize("nu", [M - 1, M, M + 2])
def test_eq_46_needs_at_least_as_many_rows_as_columns(nu):
    """Misprint: "P ≥ ν". With ν < P the product is singular and has no density; with ν ≥ P it is Wishart."""
    x = normals(1000, nu, M)
    sigma = x.mT @ x
    if nu < M:
        assert (torch.linalg.matrix_rank(sigma) == nu).all()
        with pytest.raises(ValueError, match="df must exceed"):
            Wishart(float(nu), torch.eye(M, dtype=D))
        return
    drawn = Wishart(float(nu), torch.eye(M, dtype=D)).rsample(noise=normals(1000, M, M, seed=1))
    for statistic in (torch.logdet, lambda matrices: matrices[:, 0, 1], lambda matrices: matrices[:, 2, 2]):
        assert scipy.stats.ks_2samp(statistic(sigma).numpy(), statistic(drawn).numpy()).pvalue > 1e-6


@pytest.mark.parametrize("nu", [2.3, NU, 11.0])
def test_eqs_54_to_57_give_the_wishart_density(nu):
    t = triangular(normals(M * (M + 1) // 2).abs() + 0.3)
    powers = torch.arange(M, 0, -1, dtype=D)
    log_volume = M * math.log(2) + (powers * t.diagonal().log()).sum()
    dist = Wishart(nu, torch.eye(M, dtype=D))
    torch.testing.assert_close(dist.log_prob(t @ t.mT), bartlett_log_density(t, nu) - log_volume)


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
