"""What can be said about deep linear networks without training: exact bounds, and bounds on bounds.

All are totals over the training points in nats, for the networks of `gilib.experiments.ober2021.depth`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from gilib.experiments.ober2021.depth import INPUTS, NOISE_VARIANCE, LinearProblem, left_out, summarise
from gilib.likelihoods.base import LOG_2PI
from gilib.linalg import cholesky


def log_likelihood(problem: LinearProblem, beta: Tensor) -> Tensor:
    """Log P(y | X, β), `[...]`, of regression vectors `[..., 5, 1]`."""
    x, y = summarise(problem.x, problem.y)
    squares = (y - x @ beta).square().sum((-2, -1))
    constant = 0.5 * len(x) * (LOG_2PI + math.log(NOISE_VARIANCE))
    return left_out(len(problem.x)) - constant - 0.5 * squares / NOISE_VARIANCE


def factorised_elbo(problem: LinearProblem, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """The ELBO of a factorised posterior in closed form.

        log P(y | X, E β) - tr(XᵀX Cov β) / (2 σ²) - Σ KL,        β = W_1 ⋯ W_L

    The moments of b = W_l ⋯ W_L follow from those of the layers above:
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
    """An upper bound on the ELBO of every posterior whose layers are independent.

        max_β log P(y | X, β) - ⌊(L - 1)/2⌋ κ,      κ = ½ H (1 - √s - log s),      a s^⅓ + √s = 1,
        a³ = λ |β|² / (σ² H²),      λ the smallest eigenvalue of XᵀX

    κ grows with the length of β, and for a given length the best β is that of a ridge regression.
    """
    gram = problem.x.mT @ problem.x
    ridges = torch.cat([gram.new_zeros(1), torch.logspace(-3, 9, 600, dtype=gram.dtype)])
    identity = torch.eye(INPUTS, dtype=gram.dtype)
    betas = torch.linalg.solve(gram + ridges[:, None, None] * identity, problem.x.mT @ problem.y)
    betas = torch.cat([betas, betas.new_zeros(1, INPUTS, 1)])
    smallest = torch.linalg.eigvalsh(gram)[0]
    lengths = betas.square().sum((-2, -1))
    log_s = _trade((smallest * lengths / (NOISE_VARIANCE * width**2)) ** (1 / 3))
    kappa = 0.5 * width * (1 - (log_s / 2).exp() - log_s)
    return float((log_likelihood(problem, betas) - (depth - 1) // 2 * kappa).max())


def _trade(a: Tensor) -> Tensor:
    """Log s of the solution of a s^⅓ + s^½ = 1, by bisection."""
    low, high = torch.full_like(a, -200.0), torch.zeros_like(a)
    for _ in range(80):
        middle = 0.5 * (low + high)
        below = a * (middle / 3).exp() + (middle / 2).exp() < 1
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return low


def random_layer_evidences(
    problem: LinearProblem, width: int, depth: int, draws: int, generator: torch.Generator
) -> Tensor:
    """Log evidence of random lower layers, `[draws]`; their mean is the best ELBO of rand→gi.

    Given the lower layers, β ~ N(0, B). One more layer makes of B a Wishart matrix with scale B / H and H
    degrees of freedom: no network is drawn.
    """
    x, y = summarise(problem.x, problem.y)
    factor = (torch.eye(INPUTS, dtype=x.dtype) / math.sqrt(INPUTS)).expand(draws, -1, -1)
    for _ in range(depth - 1):
        columns = torch.randn(draws, INPUTS, width, dtype=x.dtype, generator=generator)
        factor = factor @ cholesky(columns @ columns.mT) / math.sqrt(width)  # B = factor factorᵀ
    features = x @ factor
    covariance = features @ features.mT + NOISE_VARIANCE * torch.eye(len(x), dtype=x.dtype)
    marginal = MultivariateNormal(x.new_zeros(len(x)), covariance)
    return marginal.log_prob(y[:, 0]) + left_out(len(problem.x))


def random_loss_bound(problem: LinearProblem, width: int, depth: int) -> float:
    """The most that the mean of `random_layer_evidences` falls short of the evidence; infinite if H ≤ D + 1.

    ½ [D |β̂|² (H / (H - D - 1))^(L-1) - β̂ᵀ (Id/D + σ² (XᵀX)⁻¹)⁻¹ β̂],      β̂ the least-squares solution
    """
    if width <= INPUTS + 1:
        return math.inf
    gram = problem.x.mT @ problem.x
    beta = torch.linalg.solve(gram, problem.x.mT @ problem.y)
    prior = torch.eye(INPUTS, dtype=gram.dtype) / INPUTS
    fit = (beta.mT @ torch.linalg.solve(prior + NOISE_VARIANCE * torch.linalg.inv(gram), beta)).sum()
    growth = (width / (width - INPUTS - 1)) ** (depth - 1)
    return float(0.5 * (INPUTS * growth * beta.square().sum() - fit))
