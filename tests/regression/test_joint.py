"""The joint factor is conjugate regression in closed form, and moving averages of its statistics."""

from contextlib import nullcontext

import pytest
import torch

import gilib
from gilib.linalg import FactorisationError, ScaledIdentity, failures_as_nan
from gilib.regression.joint import JointState, Place, averaged, moments, residuals, scale_factor
from tests.support import D, assert_equal, normals

I, O, N = 4, 3, 20  # noqa: E741
X, Y = normals(N, I, seed=1), normals(N, O, seed=2)
PRIOR, SCALE = torch.tensor([0.7, 1.3, 2.0, 0.4], dtype=D), 0.3
EYE = torch.eye(O, dtype=D)


def state(mean, precision, scale):
    tril = torch.linalg.cholesky
    return JointState(mean, precision, tril(precision), tril(scale), torch.zeros_like(mean))


def spread(rows, size, seed):
    values = normals(rows, size, seed=seed)
    return values.mT @ values


def closed_form(x, y):
    """V⁻¹, M and Ψ of the textbook, for M_0 = 0."""
    precision = PRIOR.diag() + x.mT @ x
    mean = torch.linalg.solve(precision, x.mT @ y)
    return precision, mean, SCALE * EYE + y.mT @ y - mean.mT @ precision @ mean


def at_rate(rate):
    return torch.tensor(rate, dtype=D)


def test_a_first_batch_is_the_conjugate_posterior():
    """Whatever the state before: both forms of Ψ, and the mean of `regress` from the same statistics."""
    start = state(normals(I, O, seed=3), spread(9, I, 4), spread(9, O, 5))
    after = averaged(start, residuals(X, Y, start.mean, 1.0), PRIOR, SCALE, at_rate(1.0))
    precision, mean, scale = closed_form(X, Y)
    left = Y - X @ mean
    other = SCALE * EYE + left.mT @ left + mean.mT @ PRIOR.diag() @ mean
    assert_equal(after.precision.tril(), precision.tril(), 1e-10)
    assert_equal(after.precision_tril @ after.precision_tril.mT, precision, 1e-10)
    assert_equal(after.mean, mean, 1e-10)
    assert_equal(after.scale_tril @ after.scale_tril.mT, scale, 1e-10)
    assert_equal(after.scale_tril @ after.scale_tril.mT, other, 1e-10)
    same = gilib.statistics.shared_statistics(X, Y, torch.ones(N, dtype=D))
    one_scale, batch = torch.full((I,), 0.7, dtype=D), residuals(X, Y, start.mean, 1.0)
    with_one_scale = averaged(start, batch, one_scale, SCALE, at_rate(1.0))
    regressed = gilib.regression.regress(same, ScaledIdentity(one_scale[0], I))
    assert_equal(with_one_scale.mean, regressed.mean, 1e-10)


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("size", [I, 110, 112, 401])
def test_moments_are_plain_products(lead, size):
    """Wide features a few rows at a time, with and without a constant, in memory that is used again."""
    x, left = normals(*lead, 7, size, seed=1), normals(*lead, 7, O, seed=2)
    memory = torch.zeros(*lead, size + 1, size + 1, dtype=D)
    for _ in range(2):
        found = moments(x, left, 0.7, 0.3, bias=True, out=memory)
    full = 0.3 * torch.cat([x, torch.ones_like(x[..., :1])], -1)
    same = moments(full, left, 0.7)
    assert (found.gram is memory) == (size > I)  # few features and outputs take one product
    for gram, cross, scatter in (found, same):
        assert_equal(gram.tril(), 0.7 * (full.mT @ full).tril(), 1e-12)
        assert_equal(cross, 0.7 * full.mT @ left, 1e-12)
        assert_equal(scatter, 0.7 * left.mT @ left, 1e-12)
    mean = normals(*lead, size + 1, O, seed=3)
    expected = residuals(full, left, mean, 0.7)
    for value, other in zip(residuals(x, left, mean, 0.7, 0.3, bias=True), expected, strict=True):
        assert_equal(value.tril(), other.tril(), 1e-12)


def test_many_batches_are_moving_averages_of_statistics():
    """Eq. 17, with the bias correction as a rate; at β = 1 only the last batch is left."""
    for beta in (0.3, 1.0):
        current = state(normals(I, O, seed=3), spread(9, I, 4), spread(9, O, 5))
        xx, xy, yy = torch.zeros(I, I, dtype=D), torch.zeros(I, O, dtype=D), torch.zeros(O, O, dtype=D)
        for t in range(1, 8):
            x, y = normals(6, I, seed=10 + t), normals(6, O, seed=20 + t)
            new = (N / 6) * x.mT @ x, (N / 6) * x.mT @ y, (N / 6) * y.mT @ y
            xx, xy, yy = map(torch.lerp, (xx, xy, yy), new, [at_rate(beta)] * 3)
            unbiased = 1 - (1 - beta) ** t
            batch = residuals(x, y, current.mean, N / 6)
            current = averaged(current, batch, PRIOR, SCALE, at_rate(beta / unbiased))
            precision = PRIOR.diag() + xx / unbiased
            mean = torch.linalg.solve(precision, xy / unbiased)
            scale = SCALE * EYE + yy / unbiased - mean.mT @ precision @ mean
            assert_equal(current.mean, mean, 1e-10)
            assert_equal(current.scale_tril @ current.scale_tril.mT, scale, 1e-10)
        if beta == 1.0:
            x, y = normals(6, I, seed=17), normals(6, O, seed=27)
            assert_equal(current.mean, closed_form((N / 6) ** 0.5 * x, (N / 6) ** 0.5 * y)[1], 1e-10)


def test_replicas_are_separate():
    starts = [state(normals(I, O, seed=s), spread(9, I, s + 1), spread(9, O, s + 2)) for s in (3, 30)]
    together = JointState(*map(torch.stack, zip(*starts, strict=True)))
    x, y = normals(2, 6, I, seed=7), normals(2, 6, O, seed=8)
    rates = torch.tensor([0.2, 0.9], dtype=D)
    after = averaged(together, residuals(x, y, together.mean, 2.0), PRIOR.expand(2, I), SCALE, rates)
    for r, start in enumerate(starts):
        alone = averaged(start, residuals(x[r], y[r], start.mean, 2.0), PRIOR, SCALE, rates[r])
        for value, expected in zip(after, alone, strict=True):
            assert_equal(value[r].tril(), expected.tril())


def test_it_stays_positive_definite_where_subtraction_does_not():
    """Targets that are known to 1e-4, in float32: Ψ by subtraction has a negative eigenvalue."""
    x, weights = normals(200, I, seed=1), 100.0 * normals(I, O, seed=2)
    y = x @ weights + 1e-4 * normals(200, O, seed=3)
    small, weak = 1e-9, 1e-12
    xs, ys = x.float(), y.float()
    start = state(weights.float(), torch.eye(I), torch.eye(O))
    prior = torch.full((I,), weak)
    after = averaged(start, residuals(xs, ys, start.mean, 1.0), prior, small, torch.tensor(1.0))
    precision = prior.diag() + xs.mT @ xs
    mean = torch.linalg.solve(precision, xs.mT @ ys)
    subtracted = small * torch.eye(O) + ys.mT @ ys - mean.mT @ precision @ mean
    exact = y - x @ torch.linalg.solve(weak * torch.eye(I, dtype=D) + x.mT @ x, x.mT @ y)
    assert float(torch.linalg.eigvalsh(subtracted).min()) < 0.0
    # rounding y, of size 300, to float32 moves residuals by 300 · 2⁻²⁴ = 2e-5, a fifth of their size
    ratio = after.scale_tril.double().square().sum() / (exact.square().sum() + O * small)
    assert 0.6 < float(ratio) < 1.5


def drawn(start, white):
    """A = M + T⁻ᵀS."""
    step = torch.linalg.solve_triangular(start.precision_tril.mT, white, upper=True)
    return Place(start.mean + step, white)


@pytest.mark.parametrize(("lead", "size"), [((), I), ((2,), I), ((), 300)])
def test_residuals_may_be_taken_anywhere(lead, size):
    """At drawn weights or at the mean: the same state, whatever the number of blocks."""
    spreads = [normals(*lead, 2 * n, n, seed=n) for n in (size, O)]
    precision, scale = (value.mT @ value for value in spreads)
    start = state(normals(*lead, size, O, seed=3), precision, scale)
    x, y = normals(*lead, N, size, seed=7), normals(*lead, N, O, seed=8)
    prior = torch.linspace(0.5, 2.0, size, dtype=D).expand(*lead, size)
    place, rate = drawn(start, normals(*lead, size, O, seed=9)), at_rate(0.3).expand(lead)
    found = averaged(start, moments(x, y - x @ place.centre, 2.0), prior, SCALE, rate, place)
    expected = averaged(start, residuals(x, y, start.mean, 2.0), prior, SCALE, rate)
    for value, other in zip((found.mean, *found[1:4]), (expected.mean, *expected[1:4]), strict=True):
        assert_equal(value.tril(), other.tril(), 1e-9)


def test_new_directions_of_wide_priors_leave_the_noise_in_float32():
    """Features that turn into directions where V is 10⁶, and targets near what the draw gives there.

    Residuals at the mean are of size 10³ · 0.1, their squares 10⁷ times those at the draw: all of float32.
    """
    weak = torch.full((I,), 1e-6, dtype=D)
    old = normals(N, 1, seed=1) @ normals(1, I, seed=2)
    precision = weak.diag() + old.mT @ old
    start = state(normals(I, O, seed=3), precision, 1e-3 * EYE)
    place = drawn(start, 0.1 * normals(I, O, seed=4))
    x, left = normals(N, I, seed=5), 0.01 * normals(N, O, seed=6)
    results = []
    for dtype in (D, torch.float32):
        own = JointState(*(value.to(dtype) for value in start))
        there = Place(*(value.to(dtype) for value in place))
        batch = moments(x.to(dtype), left.to(dtype), 1.0)
        results.append(averaged(own, batch, weak.to(dtype), 1e-3, torch.tensor(0.2, dtype=dtype), there))
    exact, rounded = (value.scale_tril.double() @ value.scale_tril.double().mT for value in results)
    assert float((rounded - exact).norm() / exact.norm()) < 1e-3
    at_mean = residuals(x, x @ place.centre + left, start.mean, 1.0)
    assert float(at_mean.scatter.max() * 2**-24) > float(exact.diagonal().min())  # what float32 would lose


@pytest.mark.parametrize("where", ["features", "targets"])
def test_what_is_not_finite_is_named(where):
    x, y = X.clone(), Y.clone()
    (x if where == "features" else y)[0, 0] = float("nan")
    start = state(torch.zeros(I, O, dtype=D), torch.eye(I, dtype=D), EYE)
    with pytest.raises(gilib.linalg.FactorisationError, match="of a layer's regression.*NaN or infinite"):
        averaged(start, residuals(x, y, start.mean, 1.0), PRIOR, SCALE, at_rate(0.5))


@pytest.mark.parametrize("failures", [nullcontext, failures_as_nan])
def test_only_replicas_whose_factor_fails_are_mended(failures):
    """Whether or not others may break down; a scatter that is none at all is an error."""
    scatter = torch.stack([torch.eye(2), torch.ones(2, 2)])  # the second has no factor
    with failures():
        healthy, mended = scale_factor(scatter, torch.zeros(2, I, 2))
    assert torch.equal(healthy, torch.eye(2))
    assert float((mended @ mended.mT - 1.0).abs().max()) < 1e-3
    refused = pytest.raises(FactorisationError, match="residual scatter")
    with failures(), refused if failures is nullcontext else nullcontext():
        assert bool(scale_factor(-torch.eye(2), torch.zeros(I, 2)).isnan().all())


def test_a_precision_that_rounding_made_indefinite_is_repaired():
    """Equal features and a prior of 10⁻⁴ beside their squares: in float32 P has no factor, in float64 one.

    What is added, some (2 I ε) of the diagonal, leaves fitted values where they are.
    """
    x = (1e3 * normals(N, 1, seed=1) @ torch.ones(1, I, dtype=D)).float()
    y = x @ torch.full((I, O), 0.3)
    start = state(torch.zeros(I, O), torch.eye(I), torch.eye(O))
    weak, one = torch.full((I,), 1e-4), torch.tensor(1.0)
    batch = residuals(x, y, start.mean, 1.0)
    assert int(torch.linalg.cholesky_ex(batch.gram + weak.diag()).info) > 0
    after = averaged(start, batch, weak, SCALE, one)
    assert_equal((after.precision_tril @ after.precision_tril.mT).tril(), after.precision.tril(), 1.0)
    assert float((x @ after.mean - y).norm() / y.norm()) < 1e-3
    assert bool(after.scale_tril.isfinite().all())
