"""Natural gradients for Gaussians over inducing outputs; Adam for all other parameters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from gilib.arguments import Positive
from gilib.linalg import cholesky, readable
from gilib.linalg.factor import identities
from gilib.posteriors.free import Gaussians
from gilib.training.gradients.objective import Batch
from gilib.training.rules.adam import Adam, RunningWithAdam
from gilib.training.rules.base import Problem, Rule
from gilib.training.schedules import Schedule


@dataclass(frozen=True)
class NaturalGradient(Rule):
    """Steps along the natural gradient in q(w) = N(m, S), and steps of Adam in all other parameters.

    In the natural parameters θ = (S⁻¹m, -½S⁻¹), the natural gradient is the gradient with respect to the
    expectations (m, S + m mᵀ) (Salimbeni, Eleftheriadis & Hensman, 2018). For the loss -L this gives

        S'⁻¹ = S⁻¹ + 2 γ ∂S,    m' = m - γ S' ∂m.

    For one layer with a Gaussian likelihood, on all points, one step with γ = 1 reaches the optimum. Wherever
    a step would leave less than a fraction min(½, 1 - γ) of the precision in some direction, S'⁻¹ gets the
    second-order term of a geodesic as well; this keeps it positive definite for every ∂S (Lin, Schmidt &
    Khan, 2020).

    Args:
        lr: γ, above 0 and at most 1; deep networks and minibatches need it well below 1.
        base_optimiser: the rule for kernels, inducing inputs, noise and other layers.
        schedule: a factor for γ at every step; None: 1.

    >>> NaturalGradient(0.05).base_optimiser.lr
    0.01
    """

    lr: Positive = 0.1
    base_optimiser: Adam = Adam()
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        if self.lr > 1.0:
            raise ValueError(f"lr of natural gradients must be at most 1, a whole step, got {self.lr}")

    def begin(self, problem: Problem) -> RunningNaturalGradient:
        """Return both parts at work; raise if no layer has such a Gaussian, or a part of one is frozen."""
        return RunningNaturalGradient(self, problem)


class RunningNaturalGradient(RunningWithAdam):
    """Natural gradients in the Gaussians, Adam in all other parameters."""

    recordable = True

    def __init__(self, rule: NaturalGradient, problem: Problem):
        super().__init__(rule, problem)
        self.gaussians = [module for module in problem.net.modules() if isinstance(module, Gaussians)]
        if not self.gaussians:
            raise ValueError(
                "natural gradients are for layers with FreeGaussian and for structured deep GPs, but the "
                "network has none: use gilib.Adam"
            )
        own = {id(parameter) for module in self.gaussians for parameter in module.gaussian_parameters}
        frozen = [name for name, p in problem.net.named_parameters() if id(p) in own and not p.requires_grad]
        if frozen:
            raise ValueError(
                f"natural gradients move means and factors together, but {frozen[0]} is frozen: let it learn "
                "(requires_grad_(True)), or use gilib.Adam"
            )
        others = {name: value for name, value in problem.parameters.items() if id(value) not in own}
        self.leave_to_adam(rule.base_optimiser, others)

    def step(self, batch: Batch) -> Tensor:
        parameters = [parameter for module in self.gaussians for parameter in module.gaussian_parameters]
        bound, gradients = self.problem.bound_and_gradients(batch, [*parameters, *self.others])
        self.active &= bound.isfinite()
        scale = self.rate * self.problem.objective.num_data  # the bound is per data point
        floor = (1.0 - self.rate).clamp(max=0.5)
        own = iter(gradients[: len(parameters)])
        with torch.no_grad():
            for module in self.gaussians:
                values = module.gaussian_parameters
                pairs = zip(module.dense(values), module.dense(list(islice(own, len(values)))), strict=True)
                moved = [natural_step(*at, *gradient, scale, floor) for at, gradient in pairs]
                for parameter, value in zip(values, module.undense(moved), strict=True):
                    parameter.copy_(value)
        self.update_others(gradients[len(parameters) :])
        return bound


def natural_step(
    mean: Tensor, root: Tensor, d_mean: Tensor, d_root: Tensor, rate: Tensor, floor: Tensor
) -> tuple[Tensor, Tensor]:
    """Take a step of N(m, L Lᵀ), given gradients of the loss.

    With A = 2γ Lᵀ ∂S L, the new covariance is S' = L (Id + A)⁻¹ Lᵀ. Where some eigenvalue of Id + A, the
    fraction of the precision that a step keeps in a direction, is not above `floor`, Id + A + ½A² =
    ½ (Id + (Id + A)²) takes its place. Means are `[..., M, O]`; roots are `[..., O, M, M]`, whose upper
    triangles are not read. m' and L' have the dtype of the mean, and are computed in float64.
    """
    lower, gradient = root.double().tril(), d_root.double().tril()
    # The lower triangle of Lᵀ ∂L is that of 2 Lᵀ ∂S L; with its diagonal halved it is half of that matrix.
    half = (lower.mT @ gradient).tril()
    half.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    shift = _kept_positive(rate * (half + half.mT), floor)
    factor = cholesky(shift, "the new precision after a natural gradient (lower its learning rate)")
    spread = torch.linalg.solve_triangular(factor, lower.mT, upper=False)  # S' = spreadᵀ spread
    covariance = spread.mT @ spread
    moved = mean.double() - rate * (covariance @ d_mean.double().mT[..., None])[..., 0].mT
    return moved.to(mean), cholesky(covariance, "the covariance after a natural gradient").to(mean)


def _kept_positive(change: Tensor, floor: Tensor) -> Tensor:
    identity = identities(change)
    shift = identity + change
    too_low = torch.linalg.cholesky_ex(shift - floor * identity).info != 0
    if readable(too_low) and not bool(too_low.any()):
        return shift
    return shift + 0.5 * too_low[..., None, None] * (change @ change)
