"""Natural gradients for Gaussians over inducing outputs, Adam for the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from gilib.arguments import Positive
from gilib.linalg import cholesky, readable
from gilib.posteriors.free import Gaussians
from gilib.training.gradients.objective import Batch
from gilib.training.rules.adam import Adam
from gilib.training.rules.base import Problem, Rule, RunningRule
from gilib.training.schedules import Schedule


@dataclass(frozen=True)
class NaturalGradient(Rule):
    """Steps along the natural gradient in q(w) = N(m, S), steps of Adam in everything else.

    In the natural parameters θ = (S⁻¹m, -½S⁻¹) the natural gradient is the gradient with respect to the
    expectations (m, S + m mᵀ) (Salimbeni, Eleftheriadis & Hensman, 2018), which gives, for the loss -L,

        S'⁻¹ = S⁻¹ + 2 γ ∂S,    m' = m - γ S' ∂m.

    With a Gaussian likelihood, all points and γ = 1, one step ends at the optimum for one layer. S⁻¹ + 2 ∂S,
    towards which a step goes, may have negative eigenvalues where it is estimated from few draws. Where a
    step would leave less than a part min(½, 1 - γ) of the precision of some direction, S'⁻¹ therefore gets
    the second order of a geodesic as well, and stays positive definite whatever ∂S is (Lin, Schmidt & Khan,
    2020).

    Args:
        lr: γ, between 0 and 1; deep networks and minibatches need it well below 1.
        rest: the rule for kernels, inducing inputs, noise and other layers.
        schedule: of γ: a factor for every step; None: 1.

    >>> NaturalGradient(0.05).rest.lr
    0.01
    """

    lr: Positive = 0.1
    rest: Adam = Adam()
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        if self.lr > 1.0:
            raise ValueError(f"lr of natural gradients is at most 1, a whole step, got {self.lr}")

    def begin(self, problem: Problem) -> RunningNaturalGradient:
        """Both at work.

        Raises:
            ValueError: if no layer has such Gaussians, or a part of one is frozen.
        """
        return RunningNaturalGradient(self, problem)


class RunningNaturalGradient(RunningRule):
    """Natural gradients in some modules, Adam in the others."""

    def __init__(self, rule: NaturalGradient, problem: Problem):
        """Tell the parameters apart."""
        super().__init__(problem)
        self.rule, self.rate = rule, rule.lr
        self.gaussians = [module for module in problem.net.modules() if isinstance(module, Gaussians)]
        if not self.gaussians:
            raise ValueError(
                "natural gradients are for layers with FreeGaussian and for structured deep GPs, and the "
                "network has none: use gilib.Adam"
            )
        own = {id(parameter) for module in self.gaussians for parameter in module.gaussian_parameters}
        frozen = [name for name, p in problem.net.named_parameters() if id(p) in own and not p.requires_grad]
        if frozen:
            raise ValueError(
                f"natural gradients move means and factors together, and {frozen[0]} is frozen: let it learn "
                "(requires_grad_(True)), or use gilib.Adam"
            )
        rest = {name: value for name, value in problem.parameters.items() if id(value) not in own}
        self.adam = rule.rest.begin(replace(problem, parameters=rest)) if rest else None

    def prepare(self, step: int) -> None:
        """Set the learning rates."""
        self.rate = self.rule.lr * self.rule.factor(step, self.problem.steps)
        if self.adam is not None:
            self.adam.prepare(step)

    def step(self, batch: Batch) -> Tensor:
        """One step of each, from one gradient."""
        parameters = [parameter for module in self.gaussians for parameter in module.gaussian_parameters]
        others = [] if self.adam is None else self.adam.optimiser.parameters
        bound, gradients = self.problem.bound_and_gradients(batch, [*parameters, *others])
        self.active &= bound.isfinite()
        scale = self.rate * self.problem.objective.num_data  # the bound is per data point
        least = min(0.5, 1.0 - self.rate)
        own = iter(gradients[: len(parameters)])
        with torch.no_grad():
            for module in self.gaussians:
                values = module.gaussian_parameters
                pairs = zip(module.dense(values), module.dense(list(islice(own, len(values)))), strict=True)
                moved = [natural_step(*at, *gradient, scale, least) for at, gradient in pairs]
                for parameter, value in zip(values, module.undense(moved), strict=True):
                    parameter.copy_(value)
        if self.adam is not None:
            self.adam.optimiser.update(gradients[len(parameters) :], self.active)
        return bound

    def state_dict(self) -> dict[str, Any]:
        """That of Adam."""
        return {} if self.adam is None else self.adam.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        if self.adam is not None:
            self.adam.load_state_dict(state)


def natural_step(
    mean: Tensor, root: Tensor, d_mean: Tensor, d_root: Tensor, rate: float, least: float = 0.5
) -> tuple[Tensor, Tensor]:
    """A step of N(m, L Lᵀ) given gradients of the loss: with A = 2γ Lᵀ ∂S L, S' = L (Id + A)⁻¹ Lᵀ.

    Where Id + A does not exceed `least` times Id, Id + A + ½A² = ½ (Id + (Id + A)²) takes its place.

    Args:
        mean: m, `[..., M, O]`.
        root: L, `[..., O, M, M]`; its upper triangle is not read.
        d_mean: gradient of the loss with respect to m.
        d_root: to L.
        rate: γ.
        least: of the eigenvalues of Id + A, what a step keeps of the precision of every direction.

    Returns:
        m' and L', in the dtype of `mean`, computed in float64.

    Raises:
        FactorisationError: if gradients are not finite, or too large for S' to have a factor.
    """
    lower, gradient = root.double().tril(), d_root.double().tril()
    half = (lower.mT @ gradient).tril()
    half.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    shift = _kept_positive(rate * (half + half.mT), identity, least)
    factor = cholesky(shift, "the new precision after a natural gradient (lower its learning rate)")
    spread = torch.linalg.solve_triangular(factor, lower.mT, upper=False)  # S' = spreadᵀ spread
    covariance = spread.mT @ spread
    moved = mean.double() - rate * (covariance @ d_mean.double().mT[..., None])[..., 0].mT
    return moved.to(mean), cholesky(covariance, "the covariance after a natural gradient").to(mean)


def _kept_positive(change: Tensor, identity: Tensor, least: float) -> Tensor:
    """Id + A, or its second order where it falls too low."""
    shift = identity + change
    too_low = torch.linalg.cholesky_ex(shift - least * identity).info != 0
    if readable(too_low) and not bool(too_low.any()):
        return shift
    return shift + 0.5 * too_low[..., None, None] * (change @ change)
