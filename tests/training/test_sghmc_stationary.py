"""Chains of SGHMC whose stationary covariance is known."""

import pytest
import torch

from gilib.training import SGHMC, StoredStates
from tests.support import D, assert_mean, ridge
from tests.support.chains import FEATURES, NETWORKS, NOISE, Seen, Y, fixed, linear, running, train


def stationary(hessian, square, lr, decay):
    """Covariance of θ under θ' = θ + v', v' = (1 - α) v - ε² D H θ + noise: Σ = A Σ Aᵀ + Q, `[..., I, I]`."""
    size = hessian.shape[-1]
    mass = square.rsqrt().diag_embed()
    pull = lr**2 * mass @ hessian
    stay = (1.0 - decay) * torch.eye(size, dtype=D).expand_as(pull)
    one = torch.eye(size, dtype=D)
    step = torch.cat([torch.cat([one - pull, stay], -1), torch.cat([-pull, stay], -1)], -2)
    assert torch.linalg.eigvals(step).abs().max() < 0.99  # the start is forgotten before states are kept
    spread = (2.0 * lr**2 * decay * mass).repeat(*[1] * (mass.dim() - 2), 2, 2)
    kron = torch.einsum("...ij,...kl->...ikjl", step, step).flatten(-4, -3).flatten(-2, -1)
    identity = torch.eye(4 * size * size, dtype=D)
    covariance = torch.linalg.solve(identity - kron, spread.flatten(-2)[..., None])[..., 0]
    return covariance.unflatten(-1, (2 * size, 2 * size))[..., :size, :size]


@pytest.mark.parametrize(
    ("kind", "chains", "lr", "decay", "burn_in"),
    [("linear", 120, 0.3, 0.2, 120), ("process", 30, 0.4, 0.4, 100)],
)
def test_chains_have_the_stationary_covariance_of_their_steps(kind, chains, lr, decay, burn_in):
    """Every chain by its own V, frozen after burn-in; with long steps that is not the posterior."""
    net, kept = fixed(NETWORKS[kind]((chains,))), StoredStates(burn_in=2 * burn_in, every=20)
    train(net, Seen(burn_in, lr, decay), 4 * burn_in, callbacks=[kept])
    states = torch.stack(*kept.states.values())[..., 0].permute(1, 2, 0)  # [R, I, K]
    square = running[-1].coordinates[0].square[..., 0]
    mean, posterior = ridge(FEATURES[kind](), Y, 1.0, NOISE)
    truth = stationary(torch.linalg.inv(posterior), square, lr, decay)

    def second_moments(covariance):
        """Of states that are whitened by it, [R, I, I]: the identity on average."""
        root = torch.linalg.cholesky(covariance)
        whitened = torch.linalg.solve_triangular(root, states - mean, upper=False)
        return whitened @ whitened.mT / states.shape[-1]

    identity = torch.eye(len(mean), dtype=D)
    assert_mean(states.mean(-1), mean[:, 0])
    assert_mean(second_moments(truth), identity)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(second_moments(posterior), identity)


@pytest.mark.parametrize("adaptation", [None, 200])
def test_scales_that_follow_exact_gradients_widen_the_chain(adaptation):
    """They would be frozen after burn-in only: 2.9 times the variance; or early: the posterior's."""
    net, kept = fixed(linear((100,))), StoredStates(burn_in=400, every=50)
    train(net, SGHMC(600, lr=0.03, adaptation=adaptation), 600, callbacks=[kept])
    states = torch.stack(*kept.states.values())[..., 0]  # [K, R, I]
    mean, posterior = ridge(FEATURES["linear"](), Y, 1.0, NOISE)
    squares = ((states - mean[:, 0]) ** 2).mean(0) / posterior.diagonal()
    if adaptation is None:
        assert bool((squares.mean(0) > 2.0).all())
    else:
        assert_mean(squares, torch.ones(3, dtype=D))
