"""Chains over the inducing outputs of one layer: their exact distribution, and measures against it."""

import math

import pytest
import torch

import gilib
from experiments.lindinger2020 import chains, tasks
from experiments.lindinger2020.chains import ChainsConfig
from tests.experiments.recorded import JOB
from tests.support import D, assert_equal, normals

NOISE = 0.3


@pytest.fixture
def problem():
    task = tasks.load("boston", "interpolation", 0)
    config = ChainsConfig("boston", chains=2, num_inducing=7, training=5)
    sparse, _ = chains.trained(config, task, JOB)
    return task, sparse, chains.at_hyperparameters(sparse, config, task)


def with_states(net, states):
    """The network of chains with given states `[chains, M]`."""
    (parameter,) = (p for p in net.parameters() if p.requires_grad)
    with torch.no_grad():
        parameter.copy_(states[..., None])
    return net


def test_the_exact_distribution_has_the_log_joint_density_that_chains_follow(problem):
    """Its gradient vanishes at the mean and is -S⁻¹ times the distance elsewhere."""
    task, sparse, net = problem
    net = net.double()
    mean, factor = chains.exact(sparse, NOISE, task)
    likelihood = gilib.Gaussian(NOISE)

    def slopes(states):
        """Of the log joint density in all, per chain `[chains, M]`."""
        with_states(net, states)
        (parameter,) = (p for p in net.parameters() if p.requires_grad)
        estimate = net.estimate(1, len(task.x))
        x, y = task.x.double(), task.y.double()
        bound = gilib.elbo(estimate, likelihood, x, y, num_data=len(x), per_point=False)
        return torch.autograd.grad(bound.sum(), parameter)[0][..., 0]

    away = normals(2, len(mean), seed=1)
    precision = torch.linalg.inv(factor @ factor.T)
    assert slopes(mean.expand(2, -1)).abs().max() < 1e-6 * precision.diagonal().max()
    assert_equal(slopes(mean + away), -away @ precision, 1e-5 * float(precision.abs().max()))


def test_independent_draws_pass_as_draws_of_the_distribution():
    mean, factor = normals(5), torch.linalg.cholesky(torch.eye(5, dtype=D) + 0.5)
    states = mean + normals(4, 5000, 5, seed=1) @ factor.T
    found = chains.measured(states, mean, factor)
    count = states.numel()
    assert found["variance"] == pytest.approx(1.0, abs=6 * math.sqrt(2 / count))
    assert found["kurtosis"] == pytest.approx(0.0, abs=6 * math.sqrt(24 / count))
    assert found["thirds"] == pytest.approx([1.0] * 3, abs=6 * math.sqrt(6 / count))
    assert max(found["r_hats"]) < 1.01 and 0.8 < found["draws"] / 20_000 < 1.2
    assert found["eigenvalues"] == pytest.approx([1.0] * 4 + [3.5])  # of Id + 0.5, and 1 + 5/2
    assert found["ratios"] == pytest.approx([1.0] * 5, abs=6 * math.sqrt(10 / count))
    assert max(found["along"]) < 1.01
    assert len(found["histogram"]) == chains.BINS and sum(found["histogram"]) == pytest.approx(1.0, abs=1e-5)


def test_what_is_wrong_with_a_chain_is_found():
    """States that have not arrived, of twice the deviation, and of which some are far off."""
    mean, factor, draws = torch.zeros(3, dtype=D), torch.eye(3, dtype=D), normals(4, 2000, 3)
    drifting = draws + torch.linspace(3, 0, 2000, dtype=D)[:, None]
    thirds = chains.measured(drifting, mean, factor)["thirds"]
    assert thirds[0] > 4 > thirds[1] > 2 > thirds[2]
    assert chains.measured(2 * draws, mean, factor)["variance"] == pytest.approx(4.0, rel=0.1)
    heavy = torch.where(torch.arange(2000)[:, None] % 50 == 0, 6 * draws, draws)
    assert chains.measured(heavy, mean, factor)["kurtosis"] > 3
    apart = draws + torch.arange(4)[:, None, None]
    assert chains.measured(apart, mean, factor)["r_hats"][0] > 1.3
