"""SGHMC against Hamiltonian Monte Carlo: the inducing outputs of two layers, hyper-parameters fixed."""

import math

import numpy as np
import pytest
import torch

import gilib
from gilib.baselines import HMCSettings
from gilib.baselines.diagnostics import effective_sample_size, split_r_hat
from gilib.baselines.sampling import Sampler, Target
from gilib.training import SGHMC, StoredStates
from tests.support import D, assert_equal, assert_mean, normals, seeded

pytestmark = pytest.mark.slow

M, N, NOISE, CHAINS, KEPT = 4, 15, 0.05, 48, 600
LENGTHSCALE, VARIANCE, JITTER = 1.2, 0.8, 1e-5
X, Z = (torch.linspace(-1.5, 1.5, size, dtype=D)[:, None] for size in (N, M))
Y = torch.tanh(3 * X) + 0.2 * normals(N, 1, seed=3)


def network(replicas=()):
    kernel = gilib.kernels.RBF(lengthscale=LENGTHSCALE, variance=VARIANCE)
    net = gilib.models.deep_gp(
        1,
        1,
        2,
        posterior=gilib.PointEstimate(),
        kernel=kernel,
        inducing_points=Z,
        jitter=JITTER,
        replicas=replicas,
        dtype=D,
    )
    for name, parameter in net.named_parameters():
        parameter.requires_grad_("weights" in name)
    return net


def log_joint():
    """log P(w) + Σ_n E log N(y_n; f₂(h), σ²), h ~ N(m₁(x_n), s₁(x_n)) by Gauss-Hermite quadrature, in JAX."""
    import jax.numpy as jnp

    nodes, masses = np.polynomial.hermite_e.hermegauss(12)
    x, y, z = (values.numpy()[:, 0] for values in (X, Y, Z))

    def kernel(a, b, library):
        return VARIANCE * library.exp(-0.5 * ((a[..., :, None] - b) / LENGTHSCALE) ** 2)

    root = np.linalg.cholesky(kernel(z, z, np) + JITTER * VARIANCE * np.eye(M))
    inverse = np.linalg.inv(root)

    def process(points, w):
        white = kernel(points, z, jnp) @ inverse.T
        return white @ w, VARIANCE - (white**2).sum(-1)

    def evaluate(states):
        w = states[0]  # one column for each layer
        mean, variance = process(x, w[:, 0])
        hidden = x + mean + jnp.sqrt(variance) * nodes[:, None]
        mean, variance = process(hidden, w[:, 1])
        log_density = -0.5 * ((y - mean) ** 2 + variance) / NOISE - 0.5 * math.log(2 * math.pi * NOISE)
        expected = (masses / masses.sum()) @ log_density.sum(-1)
        return expected - 0.5 * (w**2).sum() - M * math.log(2 * math.pi)

    return evaluate


@pytest.fixture(scope="module")
def truth():
    """States of chains of Hamiltonian Monte Carlo, `[chains, kept, M, 2]`, and their log joint."""
    pytest.importorskip("numpyro")
    import jax

    settings = HMCSettings(
        burn_in=100, samples=KEPT, thin=1, leapfrog_steps=20, step_size_burn_in=0.03, step_size=0.08, chains=4
    )
    with jax.enable_x64(True):
        (states,), energy, _, _ = Sampler(Target(log_joint(), [1.0], False), settings, False).run((M - 1, 2))
    assert (
        split_r_hat(states).max() < 1.1
    )  # what is less than whole is in the errors, by effective sample size
    return states, energy


@pytest.fixture(scope="module")
def states():
    """Those of SGHMC, the last of many chains with a step that mixes, `[kept, chains, M, 2]`."""
    net, rule = network((CHAINS,)), SGHMC(burn_in=200, lr=0.1, momentum_decay=0.2)
    kept = StoredStates(burn_in=200, every=10)
    gilib.fit(
        net,
        gilib.Gaussian(NOISE),
        X,
        Y,
        steps=500,
        rule=rule,
        num_samples=1,
        callbacks=[kept],
        progress=False,
    )
    return torch.cat([torch.stack(values) for values in kept.states.values()], -1)


def compared(truth, states, function):
    """How far means are apart, in standard errors of both, and these in means; by effective sample size."""
    theirs, ours = function(truth), function(states).mean(0)  # chains of SGHMC are independent
    flat = theirs.flatten(0, 1)
    error = (flat.var(0) / effective_sample_size(theirs) + ours.var(0) / CHAINS).sqrt()
    return (ours.mean(0) - flat.mean(0)) / error, error


def test_the_two_are_of_one_density(truth):
    """N times the bound, averaged over what hidden points are, is the log joint by quadrature."""
    states, log_joints = truth
    net, noise, samples = network((8,)), gilib.Gaussian(NOISE), 1500
    eight = states[:, :: KEPT // 2].flatten(0, 1)
    with torch.no_grad():
        points = [p for p in net.parameters() if p.requires_grad]
        for layer, parameter in enumerate(points):
            parameter.copy_(eight[..., layer, None])
        estimate = net.estimate(samples, N, generator=seeded())
        expected = noise.expected_log_prob(estimate, X, Y).sum(-1)
        log_prior = estimate.log_pq
    assert_equal(log_prior[0], -0.5 * eight.square().sum((-2, -1)) - M * math.log(2 * math.pi), 1e-10)
    assert_mean(expected, log_joints[:, :: KEPT // 2].flatten() - log_prior[0])


def test_inducing_outputs_have_the_moments_of_hamiltonian_monte_carlo(truth, states):
    """Also covariances between the layers; the prior, or twice the temperature, would be seen."""
    truth, _ = truth
    centre, variance = truth.mean((0, 1)), truth.var((0, 1))
    statistics = {
        "mean": lambda w: w,
        "variance": lambda w: (w - centre).square(),
        "covariance": lambda w: (w - centre)[..., :1] * (w - centre)[..., 1:].mT,
        "spread": lambda w: (w - centre).square().sum((-2, -1)),
    }
    errors = {}
    for name, statistic in statistics.items():
        gap, errors[name] = compared(truth, states, statistic)
        assert bool((gap.abs() < 6).all()), f"{name}: off by {float(gap.abs().max()):.1f} standard errors"
    assert bool((centre.abs() > 6 * errors["mean"]).any())
    assert bool(((1 - variance) > 6 * errors["variance"]).any())
    assert bool(variance.sum() > 6 * errors["spread"])
