"""Variational rules that look like Adam: VOGN, Vadam, noisy Adam and IVON, for factorised Gaussian weights.

All of them move the mean μ and the precision Λ of Q(W) = Π N(μ, 1/Λ), which the posterior `Factorised` holds.
With N data points, the mean loss l of a minibatch (minus the log likelihood per data point), the prior
N(0, 1/P), δ = κ P / N and c = κ Λ / N, the precision per data point (κ: `kl_weight`, 1 unless tempered), a
step draws W ~ Q and does

    c ← average of c and q + δ,    m ← β₁ m + (1 - β₁) (∂l + pull of the prior),    μ ← μ - α m̂ / divisor.

m̂ = m / (1 - β₁^t). They differ in the estimate q of the loss's curvature and in the divisor:

    rule        q, averaged over the draws             average          divisor     prior pulls
    VOGN        mean of (∂l_n)² over the examples n    β₂ c + (1 - β₂)(q + δ)   c           in m, δ μ
    Vadam       (∂l)²                                  as VOGN          √v̂ + δ      in m, δ μ
    NoisyAdam   (∂l)²                                  as VOGN          c + γ       in m, δ W
    IVON        ∂l (W - μ) Λ                           Riemannian       c           beside m̂, δ μ
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from gilib.training.drawn import Slopes
from gilib.training.factorised import RunningVariational, Standing, VariationalRule, take
from gilib.training.rule import Problem
from gilib.validation import positive


@dataclass(frozen=True)
class VOGN(VariationalRule):
    """Variational online Gauss-Newton (Khan et al., 2018, Sec. 3, with momentum): squares of examples.

        q = (1/B) Σ_n (∂l_n)²,    c ← β₂ c + (1 - β₂)(q + δ),    m from ∂l + δ μ,    μ ← μ - α m̂ / c.

    The mean comes to rest where the ELBO's does, which for a linear model with Gaussian noise is the exact
    posterior mean. The precision comes to P + Σ_n E(∂l_n)²: for squared errors that has r_n² / σ⁴ where the
    Gauss-Newton matrix has 1 / σ². They agree where the squared residuals are as large as the noise says.

    For `Linear` layers: the squares are X²ᵀ G² of inputs and output gradients.

    >>> VOGN().lr
    0.05
    """

    lr: float = 5e-2
    per_example: ClassVar[bool] = True

    def curvature(self, slopes: Slopes, standing: Standing) -> Tensor:
        """Squared gradients of single examples."""
        assert slopes.squares is not None
        return slopes.squares.mean(0)


@dataclass(frozen=True)
class Vadam(VariationalRule):
    """Vadam (Khan et al., 2018, Fig. 1): Adam with the variances that its second moment suggests.

        q = (∂l)²,    c ← β₂ c + (1 - β₂)(q + δ),    v ← β₂ v + (1 - β₂) q,    v̂ = v / (1 - β₂^t),
        m from ∂l + δ μ,    μ ← μ - α m̂ / (√v̂ + δ).

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

    def curvature(self, slopes: Slopes, standing: Standing) -> Tensor:
        """The squared gradient of the minibatch."""
        return slopes.gradient.square().mean(0)


@dataclass(frozen=True)
class NoisyAdam(VariationalRule):
    """Noisy Adam (Zhang et al., 2018, Alg. 1): the squared gradient of the minibatch, damped, without a root.

        q = (∂l)²,    c ← β₂ c + (1 - β₂)(q + δ),    m from ∂l + δ W,    μ ← μ - α m̂ / (c + γ).

    It comes to rest where `Vadam` does: its variances are not the posterior's either.

    Args:
        damping: γ, the extrinsic damping.

    >>> NoisyAdam(damping=0.01).damping
    0.01
    """

    damping: float = 1e-3

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        super().__post_init__()
        positive(self.damping, "damping")

    def curvature(self, slopes: Slopes, standing: Standing) -> Tensor:
        """The squared gradient of the minibatch."""
        return slopes.gradient.square().mean(0)

    def slope(self, slopes: Slopes, standing: Standing) -> Tensor:
        """The prior pulls at the weights that were drawn."""
        return (slopes.gradient + standing.prior * slopes.weights).mean(0)

    def divisor(self, per_point: Tensor) -> Tensor:
        """Damped."""
        return per_point + self.damping


@dataclass(frozen=True)
class IVON(VariationalRule):
    """Improved variational online Newton (Shen et al., 2024, Alg. 1): the Hessian by reparameterisation.

        q = ∂l (W - μ) Λ,    c ← c + ρ d + ½ ρ² d² / c,  d = q + δ - c,  ρ = 1 - β₂,
        m from ∂l,    μ ← μ - α (m̂ + δ μ) / c.

    E q is the expected diagonal of the Hessian (Stein), which may be negative; c stays positive, for its
    update is ½ c (1 + (1 + ρ d / c)²) (Lin, Schmidt & Khan, 2020). For a linear model with Gaussian noise it
    comes to rest at the best factorised Gaussian: the posterior's mean and the diagonal of its precision; of
    noisy estimates the last term of the update makes c larger by a part that vanishes with ρ.

    The paper's h is c - δ, its λ is N / κ. It starts at the posterior's variance and not at an h₀ of its own.

    >>> IVON().lr
    0.2
    """

    lr: float = 0.2

    def curvature(self, slopes: Slopes, standing: Standing) -> Tensor:
        """Gradient times standardised noise."""
        return (slopes.gradient * (slopes.weights - standing.mean)).mean(0) * standing.precision

    def averaged(self, current: Tensor, target: Tensor) -> Tensor:
        """A step that stays positive."""
        change = 1.0 + (1.0 - self.betas[1]) * (target - current) / current
        return 0.5 * current * (1.0 + change.square())

    def slope(self, slopes: Slopes, standing: Standing) -> Tensor:
        """That of the data alone."""
        return slopes.gradient.mean(0)

    def direction(self, slope: Tensor, standing: Standing) -> Tensor:
        """The prior's pull is added here."""
        return slope + standing.prior * standing.mean


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

    def state_dict(self) -> dict[str, Any]:
        """Both moments, and those of Adam."""
        return {**super().state_dict(), "second": self.second}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        super().load_state_dict(state)
        take(self.second, state["second"])
