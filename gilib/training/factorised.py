"""What the variational rules for factorised Gaussian weights share: means and precisions that move together.

`gilib.training.variational` has the rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from gilib.training.adam import Adam
from gilib.training.drawn import DrawnWeights, GaussianWeights, Slopes
from gilib.training.objective import Batch
from gilib.training.rule import Problem, Rule, RunningRule
from gilib.training.schedules import Schedule
from gilib.validation import instance, positive


class Standing(NamedTuple):
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
class VariationalRule(Rule, ABC):
    """What the four rules share.

    Args:
        lr: α.
        betas: β₁ of the gradient, β₂ of the curvature.
        rest: the rule for everything that is not factorised weights, such as a learned noise.
        schedule: of α: a factor for every step; None: 1.
    """

    lr: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.999)
    rest: Adam = Adam()
    schedule: Schedule | None = None
    per_example: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        positive(self.lr, "lr")
        if len(self.betas) != 2 or not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas must be two numbers of at least 0 and below 1, got {self.betas!r}")
        object.__setattr__(self, "betas", tuple(self.betas))
        instance(self.rest, Adam, "rest")
        if self.schedule is not None:
            instance(self.schedule, Schedule, "schedule")

    def begin(self, problem: Problem) -> RunningVariational:
        """The rule at work.

        Raises:
            ValueError: if no layer has learned `Factorised` weights, or one has an unsuitable prior or kind.
        """
        return RunningVariational(self, problem)

    @abstractmethod
    def curvature(self, slopes: Slopes, standing: Standing) -> Tensor:
        """q, `[R, I, O]`."""

    def averaged(self, current: Tensor, target: Tensor) -> Tensor:
        """The next c, given q + δ."""
        return current.lerp(target, 1.0 - self.betas[1])

    def slope(self, slopes: Slopes, standing: Standing) -> Tensor:
        """What goes into m, `[R, I, O]`."""
        return slopes.gradient.mean(0) + standing.prior * standing.mean

    def direction(self, slope: Tensor, standing: Standing) -> Tensor:
        """What is divided by the divisor, given m̂."""
        return slope

    def divisor(self, per_point: Tensor) -> Tensor:
        """Of the step, given the next c."""
        return per_point


class RunningVariational(RunningRule):
    """One of the rules at work; the posterior holds μ and Λ, this holds m.

    Attributes:
        first: m of every layer, `[R, I, O]`.
    """

    def __init__(self, rule: VariationalRule, problem: Problem):
        """Find the layers; m = 0."""
        super().__init__(problem)
        self.rule, self.rate = rule, rule.lr
        self.drawn = DrawnWeights(problem, type(rule).__name__, rule.per_example)
        self.first = self._zeros()
        rest = self.drawn.rest
        self.adam = rule.rest.begin(replace(problem, parameters=rest)) if rest else None

    def _zeros(self) -> list[Tensor]:
        return [torch.zeros_like(own.weights.log_variance.detach()) for own in self.drawn.gaussians]

    def prepare(self, step: int) -> None:
        """Set the learning rates."""
        schedule = self.rule.schedule
        self.rate = self.rule.lr * (1.0 if schedule is None else schedule(step, self.problem.steps))
        if self.adam is not None:
            self.adam.prepare(step)

    def step(self, batch: Batch) -> Tensor:
        """One step of every layer, and of Adam for the rest, from the same draws."""
        if not batch.kl_weight > 0.0:
            raise ValueError(
                f"{type(self.rule).__name__} divides by kl_weight, which is {batch.kl_weight} at step "
                f"{batch.step}: keep it positive"
            )
        others = [] if self.adam is None else self.adam.optimiser.parameters
        bound, slopes, gradients = self.drawn(batch, others)
        self.active &= bound.isfinite()
        with torch.no_grad():
            for k, gaussian in enumerate(self.drawn.gaussians):
                self._move(k, gaussian, slopes[k], batch)
        if self.adam is not None:
            self.adam.optimiser.update(gradients, self.active)
        return bound

    def _move(self, k: int, gaussian: GaussianWeights, slopes: Slopes, batch: Batch) -> None:
        """One step of one layer."""
        rule, weight, steps = self.rule, batch.kl_weight / self.problem.objective.num_data, batch.step + 1
        precision, prior = (-gaussian.weights.log_variance).exp(), weight * gaussian.prior_precision()
        standing = Standing(gaussian.weights.mean, precision, prior)
        curvature = rule.curvature(slopes, standing)
        per_point = rule.averaged(weight * precision, curvature + prior)
        self.first[k].lerp_(rule.slope(slopes, standing), 1.0 - rule.betas[0])
        direction = rule.direction(self.first[k] / (1.0 - rule.betas[0] ** steps), standing)
        move = self.rate * direction / self.divisor(k, curvature, per_point, prior, steps)
        self.active &= (move + per_point).isfinite().all(-1).all(-1)
        gaussian.weights.become(standing.mean - move, per_point / weight)

    def divisor(self, k: int, curvature: Tensor, per_point: Tensor, prior: Tensor, steps: int) -> Tensor:
        """Of the step of layer `k`, given q, the next c, δ and t."""
        return self.rule.divisor(per_point)

    def state_dict(self) -> dict[str, Any]:
        """Moments, and those of Adam."""
        return {"first": self.first, "adam": None if self.adam is None else self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        take(self.first, state["first"])
        if self.adam is not None:
            self.adam.load_state_dict(state["adam"])


def take(own: list[Tensor], saved: list[Tensor]) -> None:
    """Copy saved tensors into one's own."""
    for value, other in zip(own, saved, strict=True):
        value.copy_(other)
