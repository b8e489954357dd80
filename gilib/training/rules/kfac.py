"""Noisy K-FAC: a matrix Gaussian whose precision is the Kronecker-factored curvature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gilib.arguments import Positive
from gilib.linalg import cholesky
from gilib.linalg.factor import identities
from gilib.linalg.products import matmul
from gilib.posteriors import MatrixGaussian, Posterior
from gilib.training.rules.base import Problem
from gilib.training.rules.sampled_weight_rule import (
    RunningSampledWeightRule,
    SampledWeightRule,
    Statistic,
    TrainedLayer,
    WeightGradients,
)


def second_moments(features: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means of x xᵀ `[R, I, I]` and g gᵀ `[R, O, O]` over examples and draws.

    Features x are `[..., B, I]`; the gradients `[S, R, B, O]` are g / B.
    """
    lead, points, size = gradients.shape[:-2], gradients.shape[-2], features.shape[-1]
    inputs = (matmul(features.mT, features) / points).expand(*lead, size, size)
    return inputs.mean(0), points * matmul(gradients.mT, gradients).mean(0)


@dataclass(frozen=True)
class NoisyKFAC(SampledWeightRule):
    """Noisy K-FAC (Zhang et al., 2018, Alg. 2) for `MatrixGaussian` weights of `Linear` layers.

    Let N be the number of data points, x_n the inputs of a layer, g_n the gradient of one point's loss with
    respect to the layer's outputs, and l the mean loss of a minibatch. For the prior N(0, 1/P), let
    δ = κ P / N (κ: `kl_weight`) and γ = δ + damping. A step draws W ~ Q = MN(M, κ/N A_δ⁻¹, S_δ⁻¹) and does

        A ← (1 - ρ_t) A + ρ_t mean x_n x_nᵀ,    S ← (1 - ρ_t) S + ρ_t mean g_n g_nᵀ,
        M ← M - α A_γ⁻¹ (∂l + δ W) S_γ⁻¹,
        A_γ = A + π √γ Id,    S_γ = S + √γ / π Id,    π² = (tr A / I) / (tr S / O)

    (Martens & Grosse, 2015).

    The rate ρ_t = ρ / (1 - (1 - ρ)^t) is 1 at the first step. Two choices are ours: the factors are computed
    at every step, and S uses the gradients for the observed targets, not for targets that are drawn.

    For a linear model with one output and Gaussian noise σ², the mean converges to the posterior mean, and
    the precision to N (A + π √δ Id)(S + √δ / π). This is N S A + P Id plus an excess √δ N (A / π + π S Id),
    the price of the factorised form. S is the mean of E r_n² / σ⁴, for residuals r_n; where it is 1 / σ²,
    N S A + P Id is the precision of the posterior.

    Args:
        lr: α, the learning rate.
        base_optimiser: the rule for all other parameters.
        schedule: a factor for α at every step; None: 1.
        decay: ρ, the weight of the newest statistics.
        damping: the part of γ that is added to δ.

    >>> NoisyKFAC(decay=0.1).damping
    0.001
    """

    lr: Positive = 5e-2
    decay: Positive = 0.05
    damping: Positive = 1e-3
    posterior: ClassVar[type[Posterior]] = MatrixGaussian

    def __post_init__(self) -> None:
        if self.decay > 1.0:
            raise ValueError(f"decay must be at most 1, where only the newest count, got {self.decay}")

    def statistic(self) -> Statistic:
        return second_moments

    def begin(self, problem: Problem) -> RunningKFAC:
        return RunningKFAC(self, problem)


def damped(inputs: Tensor, outputs: Tensor, amount: Tensor) -> tuple[Tensor, Tensor]:
    """Return A + π √γ Id and S + √γ / π Id: the factors share γ, `[R, 1, 1]`, by mean eigenvalues."""
    tiny = torch.finfo(inputs.dtype).tiny
    means = [own.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] for own in (inputs, outputs)]
    ratio = (means[0].clamp_min(tiny) / means[1].clamp_min(tiny)).sqrt()
    root = amount.sqrt()
    return inputs + ratio * root * identities(inputs), outputs + root / ratio * identities(outputs)


class RunningKFAC(RunningSampledWeightRule):
    """Noisy K-FAC at work; the posterior holds M and the factors of its covariances."""

    rule: NoisyKFAC

    def __init__(self, rule: NoisyKFAC, problem: Problem):
        super().__init__(rule, problem)
        weights = [own.weights for own in self.trained]
        self.inputs = [torch.zeros_like(own.row_root.detach()) for own in weights]
        self.outputs = [torch.zeros_like(own.column_root.detach()) for own in weights]
        self.newest = self.number()  # ρ_t

    def prepare(self, step: int) -> None:
        super().prepare(step)
        self.newest.fill_(self.rule.decay / (1.0 - (1.0 - self.rule.decay) ** (step + 1)))

    def move(self, k: int, own: TrainedLayer, gradients: WeightGradients, weight: float | Tensor) -> Tensor:
        rule, prior = self.rule, weight * own.prior_precision()
        for held, seen in zip((self.inputs[k], self.outputs[k]), gradients.statistics, strict=True):
            held.lerp_(seen, self.newest.to(held))
        slope = (gradients.gradient + prior * gradients.weights).mean(0)
        # The step is damped more than the covariances, which are part of the posterior.
        rows, columns = map(_factor, damped(self.inputs[k], self.outputs[k], prior + rule.damping))
        move = torch.cholesky_solve(torch.cholesky_solve(slope, rows).mT, columns).mT
        rows, columns = map(_root, damped(self.inputs[k], self.outputs[k], prior))
        own.weights.assign(own.weights.mean - self.rate * move, rows * weight**0.5, columns)
        return move

    def moments(self) -> dict[str, list[Tensor]]:
        return {"inputs": self.inputs, "outputs": self.outputs}


def _factor(precision: Tensor) -> Tensor:
    return cholesky(precision, "a factor of the precision of noisy K-FAC")


def _root(precision: Tensor) -> Tensor:
    return _factor(torch.cholesky_inverse(_factor(precision)))
