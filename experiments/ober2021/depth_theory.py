"""Results on deep linear networks without training: exact bounds, and bounds on bounds.

All are totals over the training points in nats, for the networks of `experiments.ober2021.depth`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from experiments.ober2021.depth import INPUTS, NOISE_VARIANCE, LinearProblem, left_out, summarise
from gilib.likelihoods.base import LOG_2PI
from gilib.linalg import cholesky


def log_likelihood(problem: LinearProblem, w: Tensor) -> Tensor:
    """Return log P(y | X, w), `[...]`, of regression vectors `[..., 5, 1]`."""
    x, y = summarise(problem.x, problem.y)
    squares = (y - x @ w).square().sum((-2, -1))
    constant = 0.5 * len(x) * (LOG_2PI + math.log(NOISE_VARIANCE))
    return left_out(len(problem.x)) - constant - 0.5 * squares / NOISE_VARIANCE


def factorised_elbo(problem: LinearProblem, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the ELBO of a factorised posterior in closed form.

        log P(y | X, E w) - tr(XᵀX Cov w) / (2 σ²) - Σ KL,        w = W_1 ⋯ W_(L+1)

    The moments of b = W_l ⋯ W_(L+1) follow from those of the layers above:
    E[W b bᵀ Wᵀ] = M E[b bᵀ] Mᵀ + diag(V diag E[b bᵀ]).

    Args:
        problem: the data.
        layers: means M and log-variances log V of every layer, `[I, O]` each, from the input to the output.
    """
    gram = problem.x.mT @ problem.x
    mean, second, kl = gram.new_ones(1, 1), gram.new_ones(1, 1), gram.new_zeros(())
    for weights, log_variance in reversed(layers):
        variance, fan_in = log_variance.exp(), len(weights)
        second = weights @ second @ weights.mT + torch.diag(variance @ second.diagonal())
        mean = weights @ mean
        price = fan_in * (weights.square() + variance) - 1 - log_variance - math.log(fan_in)
        kl = kl + 0.5 * price.sum()
    spread = (gram * (second - mean @ mean.mT)).sum()
    return log_likelihood(problem, mean) - 0.5 * spread / NOISE_VARIANCE - kl


def independent_bound(problem: LinearProblem, width: int, depth: int) -> float:
    """Return an upper bound on the ELBO of every posterior with independent layers.

        max_w log P(y | X, w) - ⌊L/2⌋ κ,      κ = ½ I (1 - √t - log t),      η t^⅓ + √t = 1,
        η³ = λ |w|² / (σ² I²),      λ the smallest eigenvalue of XᵀX,      L hidden layers of I units

    κ grows with the length of w, and for a given length the best w is that of a ridge regression.
    """
    gram = problem.x.mT @ problem.x
    ridges = torch.cat([gram.new_zeros(1), torch.logspace(-3, 9, 600, dtype=gram.dtype)])
    identity = torch.eye(INPUTS, dtype=gram.dtype)
    candidates = torch.linalg.solve(gram + ridges[:, None, None] * identity, problem.x.mT @ problem.y)
    candidates = torch.cat([candidates, candidates.new_zeros(1, INPUTS, 1)])
    smallest = torch.linalg.eigvalsh(gram)[0]
    lengths = candidates.square().sum((-2, -1))
    log_t = _trade((smallest * lengths / (NOISE_VARIANCE * width**2)) ** (1 / 3))
    kappa = 0.5 * width * (1 - (log_t / 2).exp() - log_t)
    return float((log_likelihood(problem, candidates) - (depth - 1) // 2 * kappa).max())


def _trade(eta: Tensor) -> Tensor:
    """Return log t for the solution t of η t^⅓ + √t = 1, by bisection."""
    low, high = torch.full_like(eta, -200.0), torch.zeros_like(eta)
    for _ in range(80):
        middle = 0.5 * (low + high)
        below = eta * (middle / 3).exp() + (middle / 2).exp() < 1
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return low


def random_layer_evidences(
    problem: LinearProblem, width: int, depth: int, draws: int, generator: torch.Generator
) -> Tensor:
    """Return log evidences given random lower layers, `[draws]`; their mean is the best ELBO of rand→gi.

    Given the lower layers, w ~ N(0, Σ). With one more layer, the new Σ is a Wishart matrix with scale Σ / I
    and I degrees of freedom, so no network needs to be drawn.
    """
    x, y = summarise(problem.x, problem.y)
    factor = (torch.eye(INPUTS, dtype=x.dtype) / math.sqrt(INPUTS)).expand(draws, -1, -1)
    for _ in range(depth - 1):
        columns = torch.randn(draws, INPUTS, width, dtype=x.dtype, generator=generator)
        factor = factor @ cholesky(columns @ columns.mT) / math.sqrt(width)  # Σ = factor factorᵀ
    features = x @ factor
    covariance = features @ features.mT + NOISE_VARIANCE * torch.eye(len(x), dtype=x.dtype)
    marginal = MultivariateNormal(x.new_zeros(len(x)), covariance)
    return marginal.log_prob(y[:, 0]) + left_out(len(problem.x))


def random_loss_bound(problem: LinearProblem, width: int, depth: int) -> float:
    """Bound the gap between the mean of `random_layer_evidences` and the evidence; infinite if I ≤ D + 1.

    ½ [D |ŵ|² (I / (I - D - 1))^L - ŵᵀ (Id/D + σ² (XᵀX)⁻¹)⁻¹ ŵ],      ŵ the least-squares solution
    """
    if width <= INPUTS + 1:
        return math.inf
    gram = problem.x.mT @ problem.x
    w = torch.linalg.solve(gram, problem.x.mT @ problem.y)
    prior = torch.eye(INPUTS, dtype=gram.dtype) / INPUTS
    fit = (w.mT @ torch.linalg.solve(prior + NOISE_VARIANCE * torch.linalg.inv(gram), w)).sum()
    growth = (width / (width - INPUTS - 1)) ** (depth - 1)
    return float(0.5 * (INPUTS * growth * w.square().sum() - fit))
