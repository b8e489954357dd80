"""Closed forms and bounds for deep linear networks, against draws of the library's own networks."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

import gilib
from experiments.ober2021.depth import NOISE_VARIANCE, DepthConfig, build, measure_elbo, summarise
from experiments.ober2021.depth import linear_problem as draw_problem
from experiments.ober2021.depth_theory import (
    factorised_elbo,
    independent_bound,
    log_likelihood,
    random_layer_evidences,
    random_loss_bound,
)
from tests.support import D, assert_equal, log_evidence, seeded

PROBLEM = draw_problem(0)
LIKELIHOOD = gilib.Gaussian(NOISE_VARIANCE)
SUMMARY = [part[None] for part in summarise(PROBLEM.x, PROBLEM.y)]


def random_factorised(width, depth, generator, size=1.0, log_variance=-4.0):
    """Means around `size` and log-variances around `log_variance`, relative to those of the prior."""
    widths = (5, *(width,) * (depth - 1), 1)
    layers = []
    for fan_in, outputs in zip(widths, widths[1:], strict=False):
        mean, spread = torch.randn(2, fan_in, outputs, dtype=D, generator=generator)
        layers.append((size * mean / math.sqrt(fan_in), spread + log_variance - math.log(fan_in)))
    return layers


def as_network(layers, width, depth):
    net = build([DepthConfig("fac", width, depth)], [PROBLEM]).double()
    with torch.no_grad():
        for layer, (mean, log_variance) in zip(net.layers, layers, strict=True):
            layer.weights.scaled_mean.copy_(mean * layer.weights.root_fan_in)
            layer.weights.log_variance.copy_(log_variance)
    return net


@pytest.mark.parametrize(("width", "depth"), [(4, 1), (4, 2), (6, 4)])
def test_closed_form_of_the_factorised_elbo(width, depth):
    layers = random_factorised(width, depth, seeded(depth))
    bounds = 1000 * measure_elbo(as_network(layers, width, depth), LIKELIHOOD, *SUMMARY, 5000, [0])[:, 0]
    error = bounds.std() / math.sqrt(len(bounds))
    assert (bounds.mean() - factorised_elbo(PROBLEM, layers)).abs() < 6 * error


def test_a_deterministic_network_has_its_likelihood_minus_its_price():
    """Almost no variance: the fit is that of the product of the means."""
    layers = [(mean, torch.full_like(mean, -40.0)) for mean, _ in random_factorised(4, 3, seeded())]
    product = layers[0][0] @ layers[1][0] @ layers[2][0]
    price = sum(0.5 * (len(m) * (m.square() + v.exp()) - 1 - v - math.log(len(m))).sum() for m, v in layers)
    assert_equal(factorised_elbo(PROBLEM, layers), log_likelihood(PROBLEM, product) - price, 1e-10)


@pytest.mark.parametrize(("width", "depth"), [(2, 6), (5, 3), (30, 2), (30, 6)])
def test_no_factorised_posterior_exceeds_the_bound(width, depth):
    limit, generator = independent_bound(PROBLEM, width, depth), seeded(width + depth)
    for size in (0.3, 1.0, 2.0):
        for log_variance in (-8.0, -4.0, 0.0):
            layers = random_factorised(width, depth, generator, size, log_variance)
            assert factorised_elbo(PROBLEM, layers) < limit


def one_unit_per_layer(width, depth):
    """The signal in unit one, its incoming weights precise, all else at the prior."""
    beta = torch.linalg.lstsq(PROBLEM.x, PROBLEM.y).solution[:, 0]
    layers = random_factorised(width, depth, seeded(), 0.0, 0.0)
    for k, (mean, log_variance) in enumerate(layers):
        log_variance.fill_(-math.log(len(mean)))[:, 0] -= 5.0
        unit = beta / beta.norm() if k == 0 else torch.eye(width, dtype=D)[0]
        mean[:, 0] = beta.norm() ** (1 / depth) * unit
    return [(mean.requires_grad_(), v.requires_grad_()) for mean, v in layers]


def test_the_bound_is_of_the_right_size():
    """From depth 3 to 7 the best factorised posterior found loses one to three times what the bound says."""
    found, limits = [], []
    for depth in (3, 7):
        layers = one_unit_per_layer(20, depth)
        optimiser = torch.optim.Adam([p for layer in layers for p in layer], lr=0.02)
        for _ in range(100):
            optimiser.zero_grad()
            (-factorised_elbo(PROBLEM, layers) / 1000).backward()
            optimiser.step()
        found.append(factorised_elbo(PROBLEM, layers).item())
        limits.append(independent_bound(PROBLEM, 20, depth))
        assert found[-1] < limits[-1]
    assert 1 < (found[0] - found[1]) / (limits[0] - limits[1]) < 3


def test_each_pair_of_layers_pays():
    """Minimising the trade by brute force over q and s gives κ, at the least-squares solution's length."""
    width, gram = 50, PROBLEM.x.mT @ PROBLEM.x
    beta = torch.linalg.lstsq(PROBLEM.x, PROBLEM.y).solution
    cube = float(torch.linalg.eigvalsh(gram)[0] * beta.square().sum() / (NOISE_VARIANCE * width**2))
    q = torch.linspace(0.05, 2.0, 1500, dtype=D)[:, None]
    s = torch.logspace(-4, 0, 1500, dtype=D)
    kappa = 0.5 * width * float((cube * s / q**2 + 2 * q + 2 * s.sqrt() - 2 - s.log()).min())
    best = float(log_likelihood(PROBLEM, beta))
    assert independent_bound(PROBLEM, width, 2) == pytest.approx(best, rel=1e-10)
    loss = best - independent_bound(PROBLEM, width, 4)
    assert loss <= kappa and loss == pytest.approx(kappa, rel=0.02)  # the maximum may shorten β a little
    assert independent_bound(PROBLEM, width, 3) == independent_bound(PROBLEM, width, 4)


@pytest.mark.parametrize("width", [5, 12])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_evidences_of_random_layers_through_the_chain(width, depth):
    generator = seeded(width)
    beta_root = torch.eye(5, dtype=D).expand(3000, -1, -1)
    widths = (5, *(width,) * (depth - 1))
    for fan_in, outputs in zip(widths, widths[1:], strict=False):
        layer = torch.randn(3000, fan_in, outputs, dtype=D, generator=generator)
        beta_root = beta_root @ layer / math.sqrt(fan_in)
    features = summarise(PROBLEM.x, PROBLEM.y)[0] @ beta_root
    drawn = log_evidence(features, SUMMARY[1][0], 1 / widths[-1], NOISE_VARIANCE)
    chain = random_layer_evidences(PROBLEM, width, depth, 3000, generator)
    offset = PROBLEM.log_evidence - log_evidence(SUMMARY[0][0], SUMMARY[1][0], 1 / 5, NOISE_VARIANCE)
    if depth == 1:
        assert_equal(chain, torch.full((3000,), PROBLEM.log_evidence, dtype=D), 1e-9)
        return
    error = math.hypot(drawn.std(), chain.std()) / math.sqrt(3000)
    assert abs(drawn.mean() + offset - chain.mean()) < 6 * error


@pytest.mark.parametrize("width", [12, 250])
@pytest.mark.parametrize("depth", [1, 2, 10])
def test_random_layers_lose_no_more_than_the_bound(width, depth):
    evidences = random_layer_evidences(PROBLEM, width, depth, 2000, seeded())
    loss, error = PROBLEM.log_evidence - evidences.mean(), evidences.std() / math.sqrt(2000)
    limit = random_loss_bound(PROBLEM, width, depth)
    assert 0 <= limit < math.inf
    assert loss < limit + 6 * error + 1e-9


def test_the_loss_bound_by_brute_force():
    """At one layer only Id/D against Id/D + S is left; and no bound exists at width D + 1."""
    beta = torch.linalg.lstsq(PROBLEM.x, PROBLEM.y).solution[:, 0]
    spread = NOISE_VARIANCE * torch.linalg.inv(PROBLEM.x.mT @ PROBLEM.x)
    identity, zero = torch.eye(5, dtype=D), torch.zeros(5, dtype=D)
    with_noise = MultivariateNormal(zero, identity / 5 + spread)
    fit = -2 * with_noise.log_prob(beta) - torch.logdet(2 * math.pi * with_noise.covariance_matrix)
    for depth in (1, 4):
        expected = 0.5 * (5 * beta.square().sum() * (30 / 24) ** (depth - 1) - fit)
        assert_equal(torch.tensor(random_loss_bound(PROBLEM, 30, depth)).double(), expected, 1e-6)
    assert random_loss_bound(PROBLEM, 6, 3) == math.inf
