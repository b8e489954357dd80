"""What rules share that draw weights, look at gradients there and move a posterior in closed form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gilib.arguments import Positive
from gilib.posteriors import Posterior
from gilib.training.gradients.objective import Batch
from gilib.training.rules.adam import Adam
from gilib.training.rules.base import Problem, Rule, RunningRule
from gilib.training.rules.weight_samples import SampledWeights, Statistic, TrainedLayer, WeightGradients
from gilib.training.schedules import Schedule


@dataclass(frozen=True)
class SampledWeightRule(Rule, ABC):
    """A rule for the layers with one kind of posterior.

    Args:
        lr: α.
        rest: the rule for everything else, such as a learned noise.
        schedule: of α: a factor for every step; None: 1.
    """

    lr: Positive = 1e-2
    rest: Adam = Adam()
    schedule: Schedule | None = None
    posterior: ClassVar[type[Posterior]]

    def statistic(self) -> Statistic | None:
        """What it needs of single examples, see `SampledWeights`; None: nothing."""
        return None


class RunningSampledWeightRule(RunningRule, ABC):
    """Such a rule at work, and Adam on the rest.

    Attributes:
        drawn: its layers.
        rate: α of this step.
    """

    def __init__(self, rule: SampledWeightRule, problem: Problem):
        """Find the layers."""
        super().__init__(problem)
        self.name, self.base, self.rate = type(rule).__name__, rule, rule.lr
        self.drawn = SampledWeights(problem, self.name, rule.posterior, rule.statistic())
        rest = self.drawn.rest
        self.adam = rule.rest.begin(replace(problem, parameters=rest)) if rest else None

    def prepare(self, step: int) -> None:
        """Set the learning rates."""
        self.rate = self.base.lr * self.base.factor(step, self.problem.steps)
        if self.adam is not None:
            self.adam.prepare(step)

    def step(self, batch: Batch) -> Tensor:
        """One step of every layer, and of Adam for the rest, from the same draws."""
        if not batch.kl_weight > 0.0:
            raise ValueError(
                f"{self.name} divides by kl_weight, which is {batch.kl_weight} at step {batch.step}: keep it "
                "positive"
            )
        others = [] if self.adam is None else self.adam.optimiser.parameters
        bound, of_weights, gradients = self.drawn(batch, others)
        self.active &= bound.isfinite()
        weight = batch.kl_weight / self.problem.objective.num_data
        with torch.no_grad():
            for k, (own, seen) in enumerate(zip(self.drawn.trained, of_weights, strict=True)):
                moved = self.move(k, own, seen, weight, batch.step + 1)
                self.active &= moved.isfinite().all(-1).all(-1)
        if self.adam is not None:
            self.adam.optimiser.update(gradients, self.active)
        return bound

    @abstractmethod
    def move(
        self, k: int, own: TrainedLayer, gradients: WeightGradients, weight: float | Tensor, steps: int
    ) -> Tensor:
        """One step of one layer.

        Args:
            k: its number among the trained ones.
            own: it.
            gradients: what the minibatch says.
            weight: κ / N.
            steps: how many with this one.

        Returns:
            `[R, I, O]`, finite unless the step broke down.
        """

    @abstractmethod
    def moments(self) -> dict[str, list[Tensor]]:
        """What it keeps of every layer."""

    def state_dict(self) -> dict[str, Any]:
        """Moments, and those of Adam."""
        return {**self.moments(), "adam": None if self.adam is None else self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        for name, values in self.moments().items():
            for value, saved in zip(values, state[name], strict=True):
                value.copy_(saved)
        if self.adam is not None:
            self.adam.load_state_dict(state["adam"])
