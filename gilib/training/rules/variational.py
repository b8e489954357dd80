"""Variational rules that resemble Adam: VOGN, Vadam, noisy Adam and IVON, for factorised Gaussian weights.

All of them move the mean μ and the precision Λ of Q, which `Factorised` holds. A step draws W ~ Q and does

    c ← average of c and q + δ,    m ← β₁ m + (1 - β₁) (∂l + pull),    μ ← μ - α m̂ / divisor,

where m̂ = m / (1 - β₁^t), and every rule defines the other letters.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from gilib.arguments import Fraction, Positive
from gilib.posteriors import Factorised, Posterior
from gilib.training.rules.base import Problem
from gilib.training.rules.sampled_weight_rule import (
    RunningSampledWeightRule,
    SampledWeightRule,
    Statistic,
    TrainedLayer,
    WeightGradients,
    squared_gradients,
)


class LayerState(NamedTuple):
    """The posterior of a layer before a step, and the precision of its prior per data point."""

    mean: Tensor  # μ, [R, I, O]
    precision: Tensor  # Λ, [R, I, O]
    prior: Tensor  # δ, [R, 1, 1]


@dataclass(frozen=True)
class VariationalRule(SampledWeightRule, ABC):
    """Base class of the four rules.

    Args:
        betas: β₁ of the gradient, β₂ of the curvature.
    """

    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    posterior: ClassVar[type[Posterior]] = Factorised

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))

    def begin(self, problem: Problem) -> RunningVariational:
        return RunningVariational(self, problem)

    def curvature(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """Return the estimate q of the curvature, `[R, I, O]`: here the minibatch's squared gradient."""
        return gradients.gradient.square().mean(0)

    def averaged(self, current: Tensor, target: Tensor) -> Tensor:
        """Return the next c, given q + δ."""
        return current.lerp(target, 1.0 - self.betas[1])

    def slope(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """Return the gradient that enters m, `[R, I, O]`."""
        return gradients.gradient.mean(0) + state.prior * state.mean

    def direction(self, slope: Tensor, state: LayerState) -> Tensor:
        """Return the numerator of the step, given m̂."""
        return slope

    def divisor(self, per_point: Tensor) -> Tensor:
        """Return the divisor of the step, given the next c."""
        return per_point


@dataclass(frozen=True)
class VOGN(VariationalRule):
    """Variational online Gauss-Newton (Khan et al., 2018, Sec. 3, with momentum): squares of examples.

        q = (1/B) Σ_n (∂l_n)²,    c ← β₂ c + (1 - β₂)(q + δ),    m from ∂l + δ μ,    μ ← μ - α m̂ / c.

    Here l is the mean loss of the minibatch (l_n: the loss of one example) at the drawn weights W, N(0, 1/P)
    is the prior, δ = κ P / N with κ the `kl_weight`, and Q = N(μ, 1/Λ) with c = κ Λ / N. Only for `Linear`
    layers, whose inputs and output gradients give the squares of single examples.

    The mean converges to that of the best ELBO, and the precision to P + Σ_n E(∂l_n)². For squared errors,
    E(∂l_n)² contains r_n² / σ⁴ in place of 1 / σ² in the Gauss-Newton matrix.

    >>> VOGN().lr
    0.05
    """

    lr: Positive = 5e-2

    def statistic(self) -> Statistic:
        return squared_gradients

    def curvature(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        (squares,) = gradients.statistics
        return squares.mean(0)


@dataclass(frozen=True)
class Vadam(VariationalRule):
    """Vadam (Khan et al., 2018, Fig. 1): Adam with the variances that its second moment suggests.

        q = (∂l)²,    c ← β₂ c + (1 - β₂)(q + δ),    v ← β₂ v + (1 - β₂) q,    v̂ = v / (1 - β₂^t),
        m from ∂l + δ μ,    μ ← μ - α m̂ / (√v̂ + δ).

    The letters are those of `VOGN`.

    In the paper c = v + δ, which holds here if the variance starts at the prior's. The squared mean gradient
    of a minibatch is not a curvature: in the full batch of a linear model with Gaussian noise, A = XᵀX / σ²,
    the mean converges to the posterior mean, but the precision, whatever the number of draws, to

        Λ_i = P + (P² μ_i² + Σ_j A_ij² / Λ_j) / N    and not to    P + A_ii.

    >>> Vadam().lr
    0.01
    """

    def begin(self, problem: Problem) -> RunningVadam:
        return RunningVadam(self, problem)


@dataclass(frozen=True)
class NoisyAdam(VariationalRule):
    """Noisy Adam (Zhang et al., 2018, Alg. 1): the squared gradient of the minibatch, damped, without a root.

        q = (∂l)²,    c ← β₂ c + (1 - β₂)(q + δ),    m from ∂l + δ W,    μ ← μ - α m̂ / (c + γ).

    The letters are those of `VOGN`. It converges to the same point as `Vadam`.

    Args:
        damping: γ, the extrinsic damping.

    >>> NoisyAdam(damping=0.01).damping
    0.01
    """

    damping: Positive = 1e-3

    def slope(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        return (gradients.gradient + state.prior * gradients.weights).mean(0)

    def divisor(self, per_point: Tensor) -> Tensor:
        return per_point + self.damping


@dataclass(frozen=True)
class IVON(VariationalRule):
    """Improved variational online Newton (Shen et al., 2024, Alg. 1): the Hessian by reparameterisation.

        q = ∂l (W - μ) Λ,    c ← c + ρ d + ½ ρ² d² / c,  d = q + δ - c,  ρ = 1 - β₂,
        m from ∂l,    μ ← μ - α (m̂ + δ μ) / c.

    The letters are those of `VOGN`.

    E q is the expected diagonal of the Hessian (Stein), which may be negative. But c stays positive, because
    its update equals ½ c (1 + (1 + ρ d / c)²) (Lin, Schmidt & Khan, 2020). For a linear model with Gaussian
    noise, the rule converges to the best factorised Gaussian. With noisy estimates, the last term of the
    update makes c too large, by a fraction that vanishes with ρ.

    The paper's h is c - δ, and its λ is N / κ. Here c starts from the variance of the posterior. From a wide
    one, with c far below the curvature, steps are so long that they diverge.

    >>> IVON().lr
    0.2
    """

    lr: Positive = 0.2

    def curvature(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        return (gradients.gradient * (gradients.weights - state.mean)).mean(0) * state.precision

    def averaged(self, current: Tensor, target: Tensor) -> Tensor:
        change = 1.0 + (1.0 - self.betas[1]) * (target - current) / current
        return 0.5 * current * (1.0 + change.square())

    def slope(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        return gradients.gradient.mean(0)

    def direction(self, slope: Tensor, state: LayerState) -> Tensor:
        return slope + state.prior * state.mean


class RunningVariational(RunningSampledWeightRule):
    """A variational rule at work; the posterior holds μ and Λ, and this object holds m, in `first`."""

    rule: VariationalRule

    def __init__(self, rule: VariationalRule, problem: Problem):
        super().__init__(rule, problem)
        self.first = self._zeros()
        self.unbias = [self.number() for _ in rule.betas]  # 1 - β^t

    def _zeros(self) -> list[Tensor]:
        return [torch.zeros_like(own.weights.scaled_mean.detach()) for own in self.trained]

    def prepare(self, step: int) -> None:
        super().prepare(step)
        for own, beta in zip(self.unbias, self.rule.betas, strict=True):
            own.fill_(1.0 - beta ** (step + 1))

    def move(self, k: int, own: TrainedLayer, gradients: WeightGradients, weight: float | Tensor) -> Tensor:
        rule, weights = self.rule, own.weights
        precision, prior = (-weights.log_variance).exp(), weight * own.prior_precision()
        state = LayerState(weights.mean, precision, prior)
        curvature = rule.curvature(gradients, state)
        per_point = rule.averaged(weight * precision, curvature + prior)
        self.first[k].lerp_(rule.slope(gradients, state), 1.0 - rule.betas[0])
        direction = rule.direction(self.first[k] / self.unbias[0], state)
        move = self.rate * direction / self.divisor(k, curvature, per_point, prior)
        weights.assign(state.mean - move, per_point / weight)
        return move + per_point  # NaN in the mean or in the precision shows here

    def divisor(self, k: int, curvature: Tensor, per_point: Tensor, prior: Tensor) -> Tensor:
        """Return the divisor of layer `k`'s step, given q, the next c and δ."""
        return self.rule.divisor(per_point)

    def moments(self) -> dict[str, list[Tensor]]:
        return {"first": self.first}


class RunningVadam(RunningVariational):
    """Vadam at work; it holds v, too, in `second`."""

    def __init__(self, rule: Vadam, problem: Problem):
        super().__init__(rule, problem)
        self.second = self._zeros()

    def divisor(self, k: int, curvature: Tensor, per_point: Tensor, prior: Tensor) -> Tensor:
        self.second[k].lerp_(curvature, 1.0 - self.rule.betas[1])
        return (self.second[k] / self.unbias[1]).sqrt() + prior

    def moments(self) -> dict[str, list[Tensor]]:
        return {"first": self.first, "second": self.second}
