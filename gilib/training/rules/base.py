"""A rule of training says what a step does; the engine, `gilib.fit`, does everything else.

The engine owns data, minibatches, noise, the trace, checkpoints, deadlines, processes, callbacks, progress. A
rule is a frozen specification, as a posterior is; begun on a problem it becomes a `RunningRule`, whose steps
change the network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Checked
from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.randomness import GeneratorLike
from gilib.training.gradients.objective import Batch, Objective
from gilib.training.gradients.parallel import OneProcess
from gilib.training.schedules import Schedule


@dataclass(frozen=True)
class Problem:
    """What a rule trains, and with what.

    Attributes:
        net: trained in place: parameters, buffers, or both.
        likelihood: trained in place if it has learned parameters.
        parameters: the learned ones by name, as in `net.named_parameters()`, the likelihood's with the prefix
            "likelihood."; there may be none.
        objective: `objective(batch)` is the bound per data point, `[R]`, a differentiable and pure function
            of the batch. `objective.num_data` and `objective.num_samples` are N and S.
        steps: how many there will be in all.
        generator: random numbers of the rule's own, resumed with the training; one for every replica, as
            `gilib.randomness.standard_normal` takes it, where `fit` was given a seed for each.
        processes: that train together.
        device: of the data.
        inputs: of all points, `[N, ...]` or `[R, N, ...]`, as a step sees them; None where each sees them
            augmented.
        steady: whether steps may be recorded, and numbers that change must be tensors, always the same ones.
    """

    net: Network
    likelihood: Likelihood
    parameters: Mapping[str, nn.Parameter]
    objective: Objective
    steps: int
    generator: GeneratorLike
    processes: OneProcess
    device: torch.device
    inputs: Tensor | None = None
    steady: bool = False

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """Those that replicas share: of a likelihood without replicas, or without their axis in front."""
        replicas = self.net.replicas

        def own(name: str, parameter: nn.Parameter) -> bool:
            belongs = not name.startswith("likelihood.") or self.likelihood.replicas == replicas
            return belongs and tuple(parameter.shape[: len(replicas)]) == replicas

        return {name: parameter for name, parameter in self.parameters.items() if not own(name, parameter)}

    def bound_and_gradients(
        self, batch: Batch, parameters: Sequence[nn.Parameter]
    ) -> tuple[Tensor, list[Tensor]]:
        """The bound, `[R]`, and the gradients of minus its sum over replicas, of the whole minibatch."""
        with self.propagate_failures():
            bound, gradients = self.objective.with_gradients(batch, parameters)
        bound, *gradients = self.sum_over_processes([bound, *gradients])
        return bound, gradients

    def propagate_failures(self) -> AbstractContextManager[None]:
        """Within it factorisations may fail, and then do on all processes; sums over them come after."""
        return self.processes.propagate_failures(self.device)

    def sum_over_processes(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sums over the processes: of what each has computed from its share of the minibatch."""
        return self.processes.sum(tensors)


class RunningRule(ABC):
    """A rule at work on one problem.

    Whatever the next step depends on is in the modules' parameters and buffers, which the engine keeps, or in
    `state_dict`.

    Args:
        problem: what it trains.

    Attributes:
        active: `[R]`, which replicas still train. A rule that can leave one out sets it to False at the step
            at which that one breaks down, without reading it, and leaves its parameters alone from then on.
        recordable: whether `step` does the same operations on the same tensors at every call and reads
            `batch.step` and other numbers of the host in `prepare` only, so that it can be replayed.
        ended: why further steps would change nothing, for `History`, and the training ends; else empty.
    """

    recordable = False
    ended: str = ""

    def __init__(self, problem: Problem):
        """Hold the problem; all replicas are active."""
        self.problem = problem
        self.active = torch.ones(problem.net.replicas, dtype=torch.bool, device=problem.device)

    def prepare(self, step: int) -> None:  # noqa: B027 (optional)
        """What the host does before each step; nothing by default."""

    @abstractmethod
    def step(self, batch: Batch) -> Tensor:
        """Change the network; return the objective per data point before the step, `[R]`, for the trace.

        It sums over the processes what it computes from the batch, by `problem.sum_over_processes` or
        `problem.bound_and_gradients`, and reads nothing back from an accelerator.
        """

    def check_freeze(self) -> None:
        """Raise unless a replica can be left out while the others go on."""
        raise ValueError(
            f"{type(self).__name__} cannot leave out a replica that breaks down: use on_divergence='raise'"
        )

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data; nothing by default."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        if state:
            raise NotImplementedError(f"{type(self).__name__} has a state_dict and no load_state_dict")


class Rule(Checked, ABC):
    """A rule as a frozen dataclass, whose fields (plain data, or such dataclasses) identify it.

    A checkpoint that was written under other fields is refused.

    Attributes:
        samples: draws a step, where `gilib.fit` is not told how many.
        tempers: whether what it climbs has a Kullback-Leibler term, which `kl_weight` could temper.
    """

    samples: ClassVar[int] = 5
    tempers: ClassVar[bool] = True

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at a step (from 0) of so many; 1 without a `schedule`."""
        schedule: Schedule | None = getattr(self, "schedule", None)
        return 1.0 if schedule is None else schedule(step, steps)

    @abstractmethod
    def begin(self, problem: Problem) -> RunningRule:
        """The rule at work.

        Raises:
            ValueError: if it does not serve the problem.
        """
