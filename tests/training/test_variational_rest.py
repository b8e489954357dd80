"""Where VOGN, Vadam, noisy Adam and IVON come to rest: y = x w + noise, two inputs and a bias, one output."""

import math

import pytest
import torch

import gilib
from gilib.training import IVON, VOGN, Batch, NoisyAdam, Vadam
from tests.support import D, assert_equal, normals, ridge, seeded, with_ones
from tests.support.variational import NOISE, posteriors, problem

POINTS, PRIOR = 12, 3.0
FEATURES = with_ones(normals(POINTS, 2, seed=3))
TARGETS = FEATURES @ torch.tensor([[1.0], [-0.5], [0.3]], dtype=D) + NOISE**0.5 * normals(POINTS, 1, seed=4)
GRAM = FEATURES.mT @ FEATURES / NOISE  # A


def at_rest(rule, targets=TARGETS, steps=400):
    """Mean and precision of a linear model after many steps on noise whose first two moments are exact.

    The draws are μ ± √3 σ e_j: gradients, linear in the weights, and their squares have the expectations that
    they have under Q. So the steps are deterministic, and come to rest.
    """
    net = gilib.models.mlp(2, (), 1, posterior=gilib.Factorised(), generator=seeded(), dtype=D)
    root = math.sqrt(3.0) * torch.eye(3, dtype=D)
    noise = gilib.randomness.Noise(torch.cat([root, -root]), torch.zeros(6, POINTS, 0, dtype=D))
    running = rule.begin(problem(net, POINTS))
    for step in range(steps):
        running.prepare(step)
        running.step(Batch(step, FEATURES[:, :2], targets, noise))
    ((mean, precision),) = posteriors(net)
    return mean, precision[:, 0]


def solved(precision_of, mean):
    """The fixed point of Λ = precision_of(Λ), by itself iterated with half steps."""
    precision = PRIOR + GRAM.diagonal()
    for _ in range(2000):
        precision = 0.5 * (precision + precision_of(precision, mean[:, 0]))
    return precision


def squared_residuals(precision, mean):
    """E (y_n - x_n w)², `[N]`."""
    return (TARGETS[:, 0] - FEATURES @ mean).square() + FEATURES.square() @ (1 / precision)


def test_ivon_comes_to_rest_at_the_best_factorised_gaussian():
    """Its mean is the posterior's and its precision the diagonal of the posterior's, exactly."""
    mean, precision = at_rest(IVON(0.4, betas=(0.0, 0.8)))
    exact, covariance = ridge(FEATURES, TARGETS, PRIOR, NOISE)
    assert_equal(mean, exact, 1e-10)
    assert_equal(precision, torch.linalg.inv(covariance).diagonal(), 1e-10)


def test_vogn_comes_to_rest_at_the_squared_residuals():
    """The mean is exact; the precision is P + Σ_n x_ni² E r_n² / σ⁴."""
    mean, precision = at_rest(VOGN(0.4, betas=(0.0, 0.8)))
    exact, _ = ridge(FEATURES, TARGETS, PRIOR, NOISE)
    assert_equal(mean, exact, 1e-10)
    expected = solved(
        lambda own, mu: PRIOR + FEATURES.square().mT @ squared_residuals(own, mu) / NOISE**2, exact
    )
    assert_equal(precision, expected, 1e-10)
    assert not torch.allclose(precision, PRIOR + GRAM.diagonal(), rtol=0.02)


@pytest.mark.parametrize(
    "rule", [Vadam(0.1, betas=(0.0, 0.8)), NoisyAdam(0.5, betas=(0.0, 0.8), damping=1.0)]
)
def test_vadam_and_noisy_adam_come_to_rest_elsewhere(rule):
    """The mean is exact, the precision P + (P² μ_i² + Σ_j A_ij² / Λ_j) / N: less than the posterior's."""
    mean, precision = at_rest(rule)
    exact, _ = ridge(FEATURES, TARGETS, PRIOR, NOISE)
    assert_equal(mean, exact, 1e-9)
    expected = solved(
        lambda own, mu: PRIOR + (PRIOR**2 * mu.square() + GRAM.square() @ (1 / own)) / POINTS, exact
    )
    assert_equal(precision, expected, 1e-9)
    assert bool((precision < 0.7 * (PRIOR + GRAM.diagonal())).all())


def test_ivon_keeps_precisions_positive_whatever_it_sees():
    rule = IVON(betas=(0.9, 0.0))
    current = torch.tensor([1e-3, 1.0, 1e3], dtype=D)
    for target in (-1e6, -1.0, 0.0, 1e6):
        assert bool((rule.averaged(current, torch.full_like(current, target)) >= 0.5 * current).all())


@pytest.mark.parametrize("rule", [Vadam, IVON])
def test_a_last_step_that_overflows_is_an_error(rule):
    net = gilib.models.mlp(2, (3,), 1, posterior=gilib.Factorised(), dtype=D, generator=seeded())
    x, y = normals(20, 2, seed=1), 1e3 * normals(20, 1, seed=2)
    with pytest.raises(gilib.training.DivergenceError):
        gilib.fit(net, gilib.Gaussian(0.1), x, y, steps=1, rule=rule(1e308), num_samples=1, progress=False)
