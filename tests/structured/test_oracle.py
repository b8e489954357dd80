"""The oracle of structured deep GPs against itself, where two routes exist that share no formula."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import MultivariateNormal

from tests.structured import oracle
from tests.structured.samples import ERRORS, RARE, assert_same_distribution, gaps, least_probability
from tests.support import D, assert_equal, normals, seeded

PATTERNS = list(oracle.PATTERNS)
WIDTHS, SIZES = (2, 2, 1), (4, 3, 5)
X = torch.tensor([0.3, -0.4], dtype=D)


def random_model(pattern, widths=WIDTHS, sizes=SIZES, inputs=2, seed=0):
    """Inducing inputs around the origin, mean functions below the last layer, C of the pattern at random."""
    layers, entering = [], inputs
    for k, (width, size) in enumerate(zip(widths, sizes, strict=True)):
        layers.append(
            oracle.Layer(
                inputs=normals(size, entering, seed=seed + 10 * k),
                lengthscale=0.8 + 0.5 * normals(entering, seed=seed + 10 * k + 1).square(),
                variance=torch.tensor(1.3 + 0.2 * k, dtype=D),
                outputs=width,
                mean=None if k == len(widths) - 1 else torch.eye(entering, width, dtype=D),
            )
        )
        entering = width
    where = oracle.mask(widths, sizes, pattern)
    root = where * (0.25 + 0.25 * normals(*where.shape, seed=seed + 5))
    root = root.tril(-1) + (0.3 + root.diagonal().abs()).diag()
    return oracle.from_whitened(tuple(layers), normals(len(where), seed=seed + 6), root, jitter=1e-3)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_theorem_samples_what_the_inducing_outputs_sample(pattern):
    """All layers' outputs at a point: 3 layers of 2, 2 and 1 GPs."""
    model, n = random_model(pattern), 50_000
    ours = torch.cat(oracle.sample_point(model, X, normals(n, 5, seed=1)), -1)
    brute = torch.cat(oracle.sample_by_inducing_outputs(model, X[None], seeded(2), n), -1)[:, 0]
    assert_same_distribution(ours, brute)


def test_a_distribution_without_couplings_is_told_apart():
    """The comparison above has teeth: diagonal blocks alone do not do."""
    model, n = random_model("fully_coupled"), 200_000
    blocks = oracle.mask(WIDTHS, SIZES, "mean_field")
    cut = replace(model, covariance=model.covariance * (blocks + blocks.mT).clamp(max=1))
    ours = torch.cat(oracle.sample_point(cut, X, normals(n, 5, seed=1)), -1)
    brute = torch.cat(oracle.sample_by_inducing_outputs(model, X[None], seeded(2), n), -1)[:, 0]
    assert float(gaps(ours, brute).max()) > 2 * ERRORS
    assert least_probability(ours[:, -1:], brute[:, -1:]) < RARE


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("k", [1, 2])
def test_the_theorem_is_regression_of_the_inducing_outputs(pattern, k):
    """Given f^{<l} the kernels are known numbers: update q(f_M) by what was seen, then predict."""
    model = random_model(pattern)
    values = oracle.sample_point(model, X, normals(7, 5, seed=3))
    mean, covariance = oracle.conditional(model, X.expand(7, 2), values, k)
    for s in range(7):
        seen = [value[s] for value in values]
        parts = [given_u(model, j, X if j == 0 else seen[j - 1]) for j in range(k + 1)]
        maps, noises, offsets = zip(*parts, strict=True)
        m, v = model.mean, model.covariance
        for j in range(k):  # one layer at a time, as a filter does
            gain = v @ maps[j].mT @ torch.linalg.inv(maps[j] @ v @ maps[j].mT + noises[j])
            m, v = m + gain @ (seen[j] - offsets[j] - maps[j] @ m), v - gain @ maps[j] @ v
        assert_equal(mean[s], offsets[k] + maps[k] @ m, 1e-9)
        assert_equal(covariance[s], maps[k] @ v @ maps[k].mT + noises[k], 1e-9)


def given_u(model, k, entering):
    """The map, the noise and the offset of f^l = H u + offset + noise, one GP after the other."""
    layer, gram = model.layers[k], model.gram(k)
    cross = layer.kernel(entering[None], layer.inputs)[0]
    gain = torch.linalg.solve(gram, cross)
    rows, points = torch.zeros(layer.outputs, len(model.mean), dtype=D), len(layer.inputs)
    for t in range(layer.outputs):
        start = model.unknowns(k).start + t * points
        rows[t, start : start + points] = gain
    noise = (layer.variance - gain @ cross) * torch.eye(layer.outputs, dtype=D)
    return rows, noise, layer.mean_function(entering)


def test_blocks_on_the_diagonal_alone_are_doubly_stochastic_inference():
    """f_t = K̃ m_t + mean function, variance k - K̃ (K - S_t) K̃ᵀ (Salimbeni & Deisenroth, 2017)."""
    model, eps = random_model("mean_field"), normals(6, 5, seed=4)
    values, entering, start, used = oracle.sample_point(model, X, eps), X.expand(6, 2), 0, 0
    for k, layer in enumerate(model.layers):
        columns, points = [], len(layer.inputs)
        for t in range(layer.outputs):
            own = slice(start, start + points)
            cross = layer.kernel(entering, layer.inputs)
            gain = torch.linalg.solve(model.gram(k), cross.mT).mT
            inner = model.gram(k) - model.covariance[own, own]
            variance = layer.variance - (gain @ inner * gain).sum(-1)
            mean = gain @ model.mean[own] + layer.mean_function(entering)[:, t]
            columns.append(mean + variance.sqrt() * eps[:, used])
            start, used = start + points, used + 1
        entering = torch.stack(columns, -1)
        assert_equal(values[k], entering, 1e-10)


def test_the_bound_integrates_over_the_last_layer():
    """At one point: its mean is that of log N(y; f, σ²) - KL over samples of f, and it varies less."""
    model, n, noise = random_model("fully_coupled"), 200_000, 0.3
    eps, y = normals(n, 1, 5, seed=7), torch.tensor([[0.7]], dtype=D)
    bounds = oracle.elbo_gaussian(model, X[None], y, noise, eps)
    f = oracle.sample_point(model, X, normals(n, 5, seed=8))[-1][:, 0]
    sampled = -0.5 * (math.log(2 * math.pi * noise) + (0.7 - f).square() / noise) - oracle.kl(model)
    assert float(gaps(bounds[:, None], sampled[:, None])[0]) <= ERRORS
    assert float(bounds.var()) < float(sampled.var())


def conjugate():
    """One layer of two GPs, data, and a noise variance."""
    model = random_model("fully_coupled", (2,), (4,))
    layer = replace(model.layers[0], mean=normals(2, 2, seed=9))
    return replace(model, layers=(layer,)), normals(9, 2, seed=10), normals(9, 2, seed=11), 0.2


def test_the_optimum_of_one_layer_is_the_collapsed_bound():
    """Log N(y; mean function, Q + σ²) - tr(K - Q) / 2σ², Q = K_nM K_MM⁻¹ K_Mn (Titsias, 2009, Eq. 9)."""
    model, x, y, noise = conjugate()
    layer, eps = model.layers[0], torch.zeros(1, 9, 2, dtype=D)
    cross = layer.kernel(x, layer.inputs)
    low_rank = cross @ torch.linalg.solve(model.gram(0), cross.mT)
    rest = (layer.kernel(x, x) - low_rank).trace() / (2 * noise)
    dist = MultivariateNormal(torch.zeros(9, dtype=D), low_rank + noise * torch.eye(9, dtype=D))
    wanted = dist.log_prob((y - layer.mean_function(x)).mT).sum() - 2 * rest
    best = oracle.natural_gradient_conjugate(model, x, y, noise)
    assert_equal(oracle.elbo_gaussian(best, x, y, noise, eps), wanted[None], 1e-9)
    assert float(oracle.elbo_gaussian(model, x, y, noise, eps)) < float(wanted) - 1


@pytest.mark.parametrize("length", [1.0, 0.5])
def test_a_natural_step_of_length_one_lands_on_the_optimum(length):
    """And a shorter one does not; half-way means half-way between the natural parameters."""
    model, x, y, noise = conjugate()
    eps = torch.zeros(1, 9, 2, dtype=D)
    landed = oracle.natural_step(
        model, lambda at: oracle.elbo_gaussian(at, x, y, noise, eps).sum(), length=length
    )
    best = oracle.natural_gradient_conjugate(model, x, y, noise)
    inverse, others = torch.linalg.inv(best.covariance), torch.linalg.inv(model.covariance)
    precision = length * inverse + (1 - length) * others
    linear = length * inverse @ best.mean + (1 - length) * others @ model.mean
    assert_equal(landed.covariance, torch.linalg.inv(precision), 1e-8)
    assert_equal(landed.mean, torch.linalg.solve(precision, linear), 1e-8)
