"""Variational rules that look like Adam: VOGN, Vadam, noisy Adam and IVON, for factorised Gaussian weights.

All of them move the mean μ and the precision Λ of Q, which `Factorised` holds. A step draws W ~ Q and does

    c ← average of c and q + δ,    m ← β₁ m + (1 - β₁) (∂l + pull),    μ ← μ - α m̂ / divisor,

m̂ = m / (1 - β₁^t), the other letters as at each rule. They differ in:

    rule        q, mean over draws    average                   divisor    the prior pulls
    VOGN        mean of (∂l_n)²       β₂ c + (1 - β₂)(q + δ)    c          in m, by δ μ
    Vadam       (∂l)²                 as VOGN                   √v̂ + δ     in m, by δ μ
    NoisyAdam   (∂l)²                 as VOGN                   c + γ      in m, by δ W
    IVON        ∂l (W - μ) Λ          Riemannian                c          beside m̂, by δ μ
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    """A layer's posterior before a step.

    Attributes:
        mean: μ, `[R, I, O]`.
        precision: Λ, `[R, I, O]`.
        prior: δ, the precision of the prior per data point, `[R, 1, 1]`.
    """

    mean: Tensor
    precision: Tensor
    prior: Tensor


@dataclass(frozen=True)
class VariationalRule(SampledWeightRule, ABC):
    """What the four rules share.

    Args:
        lr: α.
        rest: the rule for everything that is not factorised weights, such as a learned noise.
        schedule: of α: a factor for every step; None: 1.
        betas: β₁ of the gradient, β₂ of the curvature.
    """

    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    posterior: ClassVar[type[Posterior]] = Factorised

    def __post_init__(self) -> None:
        """Fix the order of the betas."""
        object.__setattr__(self, "betas", tuple(self.betas))

    def begin(self, problem: Problem) -> RunningVariational:
        """The rule at work.

        Raises:
            ValueError: if no layer has learned `Factorised` weights, or one has an unsuitable prior or kind.
        """
        return RunningVariational(self, problem)

    @abstractmethod
    def curvature(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """q, `[R, I, O]`."""

    def averaged(self, current: Tensor, target: Tensor) -> Tensor:
        """The next c, given q + δ."""
        return current.lerp(target, 1.0 - self.betas[1])

    def slope(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """What goes into m, `[R, I, O]`."""
        return gradients.gradient.mean(0) + state.prior * state.mean

    def direction(self, slope: Tensor, state: LayerState) -> Tensor:
        """What is divided by the divisor, given m̂."""
        return slope

    def divisor(self, per_point: Tensor) -> Tensor:
        """Of the step, given the next c."""
        return per_point


@dataclass(frozen=True)
class VOGN(VariationalRule):
    """Variational online Gauss-Newton (Khan et al., 2018, Sec. 3, with momentum): squares of examples.

        q = (1/B) Σ_n (∂l_n)²,    c ← β₂ c + (1 - β₂)(q + δ),    m from ∂l + δ μ,    μ ← μ - α m̂ / c.

    Here l is the mean loss of the minibatch (l_n of one example) at the weights W that were drawn, N(0, 1/P)
    the prior, δ = κ P / N, κ the `kl_weight`, and Q = N(μ, 1/Λ) with c = κ Λ / N.

    The mean comes to rest where the ELBO's does, which for a linear model with Gaussian noise is the exact
    posterior mean. The precision comes to P + Σ_n E(∂l_n)²: for squared errors that has r_n² / σ⁴ where the
    Gauss-Newton matrix has 1 / σ². They agree where the squared residuals are as large as the noise says.

    For `Linear` layers: the squares are X²ᵀ G² of inputs and output gradients.

    >>> VOGN().lr
    0.05
    """

    lr: Positive = 5e-2

    def statistic(self) -> Statistic:
        """Squared gradients of single examples."""
        return squared_gradients

    def curvature(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """Squared gradients of single examples."""
        (squares,) = gradients.statistics
        return squares.mean(0)


@dataclass(frozen=True)
class Vadam(VariationalRule):
    """Vadam (Khan et al., 2018, Fig. 1): Adam with the variances that its second moment suggests.

        q = (∂l)²,    c ← β₂ c + (1 - β₂)(q + δ),    v ← β₂ v + (1 - β₂) q,    v̂ = v / (1 - β₂^t),
        m from ∂l + δ μ,    μ ← μ - α m̂ / (√v̂ + δ).

    Here l is the mean loss of the minibatch (l_n of one example) at the weights W that were drawn, N(0, 1/P)
    the prior, δ = κ P / N, κ the `kl_weight`, and Q = N(μ, 1/Λ) with c = κ Λ / N.

    In the paper c = v + δ, as it is here if the variance starts at the prior's; any start will do here. The
    square of a MINIBATCH's mean gradient is no curvature: in the full batch of a linear model
    with Gaussian noise, A = XᵀX / σ², the mean comes to rest at the posterior's, but the precision at

        Λ_i = P + (P² μ_i² + Σ_j A_ij² / Λ_j) / N,

    not at P + A_ii. Of S draws the squares are averaged, not the gradients, so S does not change that.

    >>> Vadam().lr
    0.01
    """

    def begin(self, problem: Problem) -> RunningVadam:
        """The rule at work; see `VariationalRule.begin`."""
        return RunningVadam(self, problem)

    def curvature(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """The squared gradient of the minibatch."""
        return gradients.gradient.square().mean(0)


@dataclass(frozen=True)
class NoisyAdam(VariationalRule):
    """Noisy Adam (Zhang et al., 2018, Alg. 1): the squared gradient of the minibatch, damped, without a root.

        q = (∂l)²,    c ← β₂ c + (1 - β₂)(q + δ),    m from ∂l + δ W,    μ ← μ - α m̂ / (c + γ).

    Here l is the mean loss of the minibatch (l_n of one example) at the weights W that were drawn, N(0, 1/P)
    the prior, δ = κ P / N, κ the `kl_weight`, and Q = N(μ, 1/Λ) with c = κ Λ / N.

    It comes to rest where `Vadam` does: its variances are not the posterior's either.

    Args:
        damping: γ, the extrinsic damping.

    >>> NoisyAdam(damping=0.01).damping
    0.01
    """

    damping: Positive = 1e-3

    def curvature(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """The squared gradient of the minibatch."""
        return gradients.gradient.square().mean(0)

    def slope(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """The prior pulls at the weights that were drawn."""
        return (gradients.gradient + state.prior * gradients.weights).mean(0)

    def divisor(self, per_point: Tensor) -> Tensor:
        """Damped."""
        return per_point + self.damping


@dataclass(frozen=True)
class IVON(VariationalRule):
    """Improved variational online Newton (Shen et al., 2024, Alg. 1): the Hessian by reparameterisation.

        q = ∂l (W - μ) Λ,    c ← c + ρ d + ½ ρ² d² / c,  d = q + δ - c,  ρ = 1 - β₂,
        m from ∂l,    μ ← μ - α (m̂ + δ μ) / c.

    Here l is the mean loss of the minibatch (l_n of one example) at the weights W that were drawn, N(0, 1/P)
    the prior, δ = κ P / N, κ the `kl_weight`, and Q = N(μ, 1/Λ) with c = κ Λ / N.

    E q is the expected diagonal of the Hessian (Stein), which may be negative; c stays positive, for its
    update is ½ c (1 + (1 + ρ d / c)²) (Lin, Schmidt & Khan, 2020). For a linear model with Gaussian noise it
    comes to rest at the best factorised Gaussian: the posterior's mean and the diagonal of its precision; of
    noisy estimates the last term of the update makes c larger by a part that vanishes with ρ.

    The paper's h is c - δ, its λ is N / κ. It starts at the posterior's variance, not at an h₀ of its own,
    and forgets it as β₂^t. A wide start, c far below the curvature, makes steps so long that they diverge.

    >>> IVON().lr
    0.2
    """

    lr: Positive = 0.2

    def curvature(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """Gradient times standardised noise."""
        return (gradients.gradient * (gradients.weights - state.mean)).mean(0) * state.precision

    def averaged(self, current: Tensor, target: Tensor) -> Tensor:
        """A step that stays positive."""
        change = 1.0 + (1.0 - self.betas[1]) * (target - current) / current
        return 0.5 * current * (1.0 + change.square())

    def slope(self, gradients: WeightGradients, state: LayerState) -> Tensor:
        """That of the data alone."""
        return gradients.gradient.mean(0)

    def direction(self, slope: Tensor, state: LayerState) -> Tensor:
        """The prior's pull is added here."""
        return slope + state.prior * state.mean


class RunningVariational(RunningSampledWeightRule):
    """One of the rules at work; the posterior holds μ and Λ, this holds m.

    Attributes:
        first: m of every layer, `[R, I, O]`.
    """

    def __init__(self, rule: VariationalRule, problem: Problem):
        """No gradient seen yet."""
        super().__init__(rule, problem)
        self.rule, self.first = rule, self._zeros()

    def _zeros(self) -> list[Tensor]:
        return [torch.zeros_like(own.weights.scaled_mean.detach()) for own in self.drawn.trained]

    def move(
        self, k: int, own: TrainedLayer, gradients: WeightGradients, weight: float | Tensor, steps: int
    ) -> Tensor:
        """One step of μ and Λ."""
        rule, weights = self.rule, own.weights
        precision, prior = (-weights.log_variance).exp(), weight * own.prior_precision()
        state = LayerState(weights.mean, precision, prior)
        curvature = rule.curvature(gradients, state)
        per_point = rule.averaged(weight * precision, curvature + prior)
        self.first[k].lerp_(rule.slope(gradients, state), 1.0 - rule.betas[0])
        direction = rule.direction(self.first[k] / (1.0 - rule.betas[0] ** steps), state)
        move = self.rate * direction / self.divisor(k, curvature, per_point, prior, steps)
        weights.assign(state.mean - move, per_point / weight)
        return move + per_point

    def divisor(self, k: int, curvature: Tensor, per_point: Tensor, prior: Tensor, steps: int) -> Tensor:
        """Of the step of layer `k`, given q, the next c, δ and t."""
        return self.rule.divisor(per_point)

    def moments(self) -> dict[str, list[Tensor]]:
        """The first."""
        return {"first": self.first}


class RunningVadam(RunningVariational):
    """Vadam at work.

    Attributes:
        second: v of every layer, `[R, I, O]`.
    """

    def __init__(self, rule: Vadam, problem: Problem):
        """Both moments 0."""
        super().__init__(rule, problem)
        self.second = self._zeros()

    def divisor(self, k: int, curvature: Tensor, per_point: Tensor, prior: Tensor, steps: int) -> Tensor:
        """√v̂ + δ."""
        decay = self.rule.betas[1]
        self.second[k].lerp_(curvature, 1.0 - decay)
        return (self.second[k] / (1.0 - decay**steps)).sqrt() + prior

    def moments(self) -> dict[str, list[Tensor]]:
        """Both."""
        return {"first": self.first, "second": self.second}
