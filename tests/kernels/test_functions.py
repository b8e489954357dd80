"""Kernels against scikit-learn and the textbook: values, axes, features, white noise, gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sklearn

import gilib
from gilib.kernels import RBF, ArcCosine, DotProduct, Matern, Periodic, RationalQuadratic, White
from gilib.posteriors import BuildContext
from gilib.training import Collapsed
from tests.kernels.cases import INPUTS, KERNELS, ROUGH, SCALES, function, module, textbook
from tests.support import D, assert_equal, assert_mean, normals, shaken

A, B = normals(4, INPUTS, seed=1), normals(6, INPUTS, seed=2)
SKLEARN = [
    (KERNELS["rbf"], 1.7 * sklearn.RBF(SCALES)),
    (KERNELS["matern 1/2"], 0.6 * sklearn.Matern(SCALES, nu=0.5)),
    (KERNELS["matern 3/2"], 1.4 * sklearn.Matern(SCALES, nu=1.5)),
    (KERNELS["matern 5/2"], 2.1 * sklearn.Matern(1.6, nu=2.5)),
    (KERNELS["linear, no bias"], 1.4 * sklearn.DotProduct(0.0)),
    (RationalQuadratic(1.3, 0.8, alpha=0.6), 0.8 * sklearn.RationalQuadratic(1.3, 0.6)),
    (
        (RBF(0.8) + DotProduct(1.0, 0.25)) * Matern(smoothness=1.5),
        (sklearn.RBF(0.8) + sklearn.DotProduct(0.5)) * sklearn.Matern(),
    ),
]


@pytest.mark.parametrize(("spec", "oracle"), SKLEARN, ids=lambda part: "")
def test_values_are_those_of_scikit_learn(spec, oracle):
    kernel = function(spec)
    assert_equal(kernel.cross(A, B).detach(), torch.from_numpy(oracle(A.numpy(), B.numpy())), 1e-12)
    assert_equal(kernel.gram(A).detach(), torch.from_numpy(oracle(A.numpy())), 1e-12)
    assert_equal(kernel.diagonal(A).detach(), torch.from_numpy(oracle.diag(A.numpy())), 1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_the_diagonal_is_exact_where_points_are_far_from_the_origin(name):
    """Distances cancel there; the diagonal of a gram must not know of it."""
    points = 300.0 + torch.cat([A, A[:1]])
    kernel = function(KERNELS[name])
    diagonal, gram = kernel.diagonal(points), kernel.gram(points)
    assert torch.equal(gram.diagonal(), diagonal)
    pairs = torch.stack([textbook(KERNELS[name], x[None], x[None])[0, 0] for x in points])
    assert_equal(diagonal.detach(), pairs, 1e-7 if "0" in name or "sum" in name else 1e-12)  # acos at 1


@pytest.mark.parametrize("name", KERNELS)
def test_replicas_have_hyper_parameters_of_their_own(name):
    spec = KERNELS[name]
    together = shaken(module(spec, replicas=(2, 3)), 0.3)
    values, diagonals = together().cross(A, B), together().diagonal(A)
    assert values.shape == (2, 3, 4, 6) and diagonals.expand(2, 3, 4).shape == (2, 3, 4)
    single = module(spec)
    for r in range(2):
        for k in range(3):
            for key, parameter in single.named_parameters():
                parameter.data.copy_(together.get_parameter(key).data[r, k])
            assert_equal(values[r, k].detach(), single().cross(A, B).detach(), 1e-12)
            assert_equal(diagonals.expand(2, 3, 4)[r, k].detach(), single().diagonal(A).detach(), 1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_values_have_the_dtype_of_the_points_and_are_as_exact(name):
    """Arithmetic is in float64; float32 loses a rounding of the value, and one of the RBF's exponent."""
    kernel = function(KERNELS[name])
    low, high = kernel.cross(A.float(), B.float()), kernel.cross(A.float().double(), B.float().double())
    assert low.dtype == torch.float32
    largest = 1 + (high.abs() / high.abs().max()).log().abs().max()  # of exponents
    assert ((low.double() - high).abs() <= 8 * 2**-24 * largest * high.abs().max()).all()
    assert kernel.gram(A.float()).dtype == kernel.diagonal(A.float()).dtype == torch.float32


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    lead=st.sampled_from([(), (2,), (3, 1), (3, 2)]),
    other=st.sampled_from([(), (2,), (1, 2)]),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    seed=st.integers(0, 1000),
)
def test_shapes_broadcast_and_grams_are_covariances(name, lead, other, sizes, seed):
    a, b = normals(*lead, sizes[0], INPUTS, seed=seed), normals(*other, sizes[1], INPUTS, seed=seed + 1)
    kernel = function(KERNELS[name])
    values = kernel.cross(a, b)
    assert values.shape == (*torch.broadcast_shapes(lead, other), *sizes) and values.dtype == D
    assert_equal(values.detach(), textbook(KERNELS[name], a, b), 1e-12)
    assert_equal(values.mT.detach(), kernel.cross(b, a).detach(), 1e-12)
    gram = kernel.gram(a).detach()
    scale = gram.diagonal(dim1=-2, dim2=-1).amax()
    assert torch.linalg.eigvalsh(gram).min() > -1e-12 * scale


@pytest.mark.parametrize("spec", [RBF(), Matern()], ids=str)
def test_points_far_from_the_origin_keep_their_distances(spec):
    """Multiples of 1/8, moved by 2²⁵ without rounding."""
    kernel, x = spec.build(1, BuildContext())(), torch.arange(6, dtype=D)[:, None] / 8
    assert_equal(kernel.cross(x + 2.0**25, x[:4] + 2.0**25).detach(), kernel.cross(x, x[:4]).detach(), 1e-12)


def twice(spread):
    """Every point twice, one of them far away, as no centre can mend."""
    points = normals(20, INPUTS, seed=5)
    points[0] *= spread
    return torch.cat([points, points]).requires_grad_()


@pytest.mark.parametrize("spread", [1.0, 1000.0])
@pytest.mark.parametrize(
    "kernel",
    [Matern(0.3, 0.6, smoothness=0.5), Matern(0.3, 0.6), RBF(0.3, 0.6), ArcCosine(0, variance=0.6)],
    ids=["matern 1/2", "matern 5/2", "rbf", "arc cosine"],
)
def test_points_that_coincide_are_one(kernel, spread):
    """From squares that cancel, k(x, x) of rough kernels was low by the root of their rounding: 3e-5."""
    points, kernel = twice(spread), function(kernel)
    same = kernel.cross(points, points)[:20, 20:].diagonal()
    wanted = torch.full((20,), 0.6, dtype=D)
    torch.testing.assert_close(same.detach(), wanted, rtol=1e-8, atol=0.0)
    (slope,) = torch.autograd.grad(kernel.gram(points).sum(), points)
    assert bool(slope.isfinite().all())


X = normals(4, INPUTS, seed=1)
MANY = 20_000


@pytest.mark.parametrize("name", KERNELS)
def test_mean_and_covariance(name):
    kernel = function(KERNELS[name])
    values = kernel.features(X, normals(1, MANY, kernel.feature_noise, seed=2))[0].detach()
    assert values.shape == (4, MANY)
    assert_mean(values.mT, torch.zeros(4, dtype=D))
    products = values.mT[:, :, None] * values.mT[:, None, :]
    assert_mean(products, textbook(KERNELS[name], X, X))


@pytest.mark.parametrize("name", KERNELS)
def test_sample_and_replica_axes_and_dtypes(name):
    """`[S, R, N, F]` of points with fewer axes, or with them; each slice as if it were alone."""
    kernel = shaken(module(KERNELS[name], replicas=(2,)), 0.3)()
    noise, points = normals(3, 2, 5, kernel.feature_noise, seed=3), normals(3, 2, 4, INPUTS, seed=4)
    shared, own = kernel.features(X, noise), kernel.features(points, noise)
    assert shared.shape == own.shape == (3, 2, 4, 5)
    for s in range(3):
        assert_equal(shared[s].detach(), kernel.features(X, noise[s]).detach(), 1e-12)
        assert_equal(own[s].detach(), kernel.features(points[s], noise[s]).detach(), 1e-12)
    single = kernel.features(X.float(), noise.float())
    assert single.dtype == torch.float32
    if name not in ("arc-cosine 0", "sum of a product"):  # steps jump
        assert_equal(single.double().detach(), shared.detach(), 1e-4)


TWICE = torch.cat([A, A[:2]])
WITH_NOISE = {
    "alone": White(0.6),
    "sum": RBF(0.9, 1.3) + White(0.6),
    "product": RBF(0.9, 1.3) * White(0.6),
    "sum in a product": (RBF(0.9, 1.3) + White(0.6)) * DotProduct(0.5),
    "on a column": DotProduct() + (RBF(0.9) + White(0.6)).on(1),
}
ADDED = {"product": 1.3 * 0.6, "sum in a product": 0.6 * (0.5 * TWICE.square().sum(1) + 1.0)}  # else 0.6


@pytest.mark.parametrize("name", WITH_NOISE)
def test_a_row_has_noise_of_its_own_even_where_it_stands_twice(name):
    kernel, added = (
        function(WITH_NOISE[name]),
        torch.as_tensor(ADDED.get(name, 0.6), dtype=D).expand(6).diag(),
    )
    smooth = kernel.without_white()
    assert_equal(kernel.gram(TWICE).detach(), (smooth.gram(TWICE) + added).detach(), 1e-12)
    assert_equal(kernel.cross(A, TWICE).detach(), smooth.cross(A, TWICE).detach(), 1e-12)
    assert smooth.feature_noise == kernel.feature_noise
    assert smooth.without_white().diagonal(A).isfinite().all()


@pytest.mark.parametrize("name", WITH_NOISE)
def test_features_are_of_points_that_differ(name):
    """Mean zero, and the gram of rows that are apart; the smooth part's of the kernel without noise."""
    kernel = function(WITH_NOISE[name])
    noise = normals(1, 20_000, kernel.feature_noise, seed=3)
    for part in {"alone": [kernel]}.get(name, [kernel, kernel.without_white()]):
        values = part.features(A, noise)[0].detach()
        if name == "product" and part is not kernel:
            assert not values.any()
            continue
        assert_mean(values.mT, torch.zeros(4, dtype=D))
        assert_mean(values.mT[:, :, None] * values.mT[:, None, :], part.gram(A).detach())


def test_kernels_without_it_are_themselves():
    for spec in (RBF(), RBF() + Periodic() * DotProduct(), RBF().on(0)):
        kernel = function(spec)
        assert kernel.without_white() is kernel


def test_replicas_and_single_precision():
    together, variances = module(RBF() + White(), replicas=(2,)), torch.tensor([[0.5], [2.0]], dtype=D)
    with torch.no_grad():
        together.parts[1].log["variance"].copy_(variances.log())
    assert together().cross(A, B).shape == (2, 4, 6)
    added = together().gram(A) - together().cross(A, A)
    assert_equal(added.detach(), variances[..., None] * torch.eye(4, dtype=D), 1e-12)
    assert together().gram(A.float()).dtype == together().cross(A.float(), B.float()).dtype == torch.float32
    noise = normals(3, 2, 5, together().feature_noise)
    assert together().features(A.float(), noise.float()).dtype == torch.float32


@pytest.mark.parametrize("points", [A, A[:2]], ids=["exact", "sparse"])
@pytest.mark.parametrize("name", ["alone", "sum", "on a column"])
def test_the_collapsed_bound_leaves_noise_to_the_likelihood(name, points):
    net = gilib.models.sparse_gp(INPUTS, 1, inducing_points=points, kernel=WITH_NOISE[name])
    likelihood, y = gilib.Gaussian(0.1), normals(4, 1)
    with pytest.raises(ValueError, match=r"has white noise, and so has the likelihood.*leave .*White out"):
        gilib.training.solve_posterior(net, likelihood, A, y)
    with pytest.raises(ValueError, match="has white noise"):
        gilib.fit(net, likelihood, A, y, steps=1, rule=Collapsed(), progress=False)


THREE, FOUR = normals(3, INPUTS, seed=1), normals(4, INPUTS, seed=2)
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
    z, x = (THREE, FOUR) if name in ROUGH else (torch.cat([THREE, THREE[:1]]), torch.cat([FOUR, THREE[:2]]))
    assert check(KERNELS[name], lambda kernel, a, b: kernel().cross(a, b), z, x)
    assert check(KERNELS[name], lambda kernel, a: kernel().gram(a), z)
    assert check(KERNELS[name], lambda kernel, a: kernel().diagonal(a).expand(3), THREE)
    assert check(KERNELS[name], lambda kernel, a: kernel().features(a, noise), THREE)


@pytest.mark.parametrize("name", ROUGH)
def test_rough_kernels_pull_at_nothing_where_points_meet(name):
    """No derivative exists there: the gradient is that of the other pairs."""
    weights = normals(4, 6, seed=4)
    meet = torch.zeros(4, 6, dtype=torch.bool)
    meet[0, 4] = meet[1, 5] = meet[3, 4] = True

    def gradients(values, *points):
        return torch.autograd.grad((values * weights).sum(), points)

    z, x = torch.cat([THREE, THREE[:1]]).requires_grad_(), torch.cat([FOUR, THREE[:2]]).requires_grad_()
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
