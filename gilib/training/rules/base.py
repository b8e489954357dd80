"""A rule of training defines what a step does; the engine, `gilib.fit`, does everything else."""

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
from gilib.persistence import CheckpointError
from gilib.randomness import GeneratorLike
from gilib.training.gradients.objective import Batch, Objective
from gilib.training.gradients.parallel import OneProcess
from gilib.training.schedules import Schedule


@dataclass(frozen=True)
class Problem:
    """What a rule trains, and what it needs to do so.

    Attributes:
        net: the network; the rule changes its parameters, its buffers, or both in place.
        likelihood: the likelihood; its learned parameters, if any, are trained in place.
        parameters: the learned parameters by name, as in `net.named_parameters()`; names of the likelihood's
            begin with "likelihood.". There may be none. Their axes R are in front.
        objective: the bound per data point, `[R]`, as a differentiable, pure function of the batch.
        steps: total number of steps.
        generator: the rule's own source of random numbers, resumed with the training, for
            `gilib.randomness.standard_normal`; one for each replica if `gilib.fit` was given a seed for each.
        processes: the processes that train together.
        device: device of the data.
        inputs: inputs of all points, `[N, ...]` or `[R, N, ...]`, as every step sees them; None if an
            augmentation changes them from step to step.
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

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters without replica axes in front, and those of a likelihood without replicas."""
        replicas = self.net.replicas

        def own(name: str, parameter: nn.Parameter) -> bool:
            belongs = not name.startswith("likelihood.") or self.likelihood.replicas == replicas
            return belongs and tuple(parameter.shape[: len(replicas)]) == replicas

        return {name: parameter for name, parameter in self.parameters.items() if not own(name, parameter)}

    def bound_and_gradients(
        self, batch: Batch, parameters: Sequence[nn.Parameter]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the minibatch's bound, `[R]`, and the gradients of minus its sum over replicas."""
        with self.propagate_failures():
            bound, gradients = self.objective.with_gradients(batch, parameters)
        bound, *gradients = self.sum_over_processes([bound, *gradients])
        return bound, gradients

    def propagate_failures(self) -> AbstractContextManager[None]:
        """Return a context in which a failed factorisation on one process raises on all of them.

        Call `sum_over_processes` only after leaving it.
        """
        return self.processes.propagate_failures(self.device)

    def sum_over_processes(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums over the processes of what each has computed from its share of the minibatch."""
        return self.processes.sum(tensors)


class RunningRule(ABC):
    """A rule at work on one problem.

    All state on which the next step depends must be in parameters and buffers of the modules, which the
    engine saves, or in `state_dict`.

    Args:
        problem: what the rule trains.

    Attributes:
        active: `[R]`, which replicas still train. A rule that can leave a replica out sets its entry to False
            when it breaks down, without reading the value on the host, and changes its parameters no more.
        recordable: whether steps can be replayed. For that, `step` must do the same operations on the same
            tensors at every call in a phase, and only `prepare` may read the step and other numbers of the
            host, which it writes into tensors (`number`).
        phase: changed by `prepare` where `step` begins to do other operations, which are recorded anew.
        ended: the reason why further steps would change nothing, which ends the training; empty until then.
    """

    recordable = False
    phase: int = 0
    ended: str = ""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.active = torch.ones(problem.net.replicas, dtype=torch.bool, device=problem.device)

    def number(self, value: float = 1.0) -> Tensor:
        """Return a number that `prepare` can change between steps: a tensor without axes, in float64."""
        return torch.full((), value, dtype=torch.float64, device=self.problem.device)

    def prepare(self, step: int) -> None:  # noqa: B027 (optional)
        """Do the host's work before a step, such as setting the learning rate; nothing by default."""

    @abstractmethod
    def step(self, batch: Batch) -> Tensor:
        """Change the network, and return the objective per data point before the step, `[R]`.

        The rule must sum over the processes what it computes from the batch, by `problem.sum_over_processes`
        or `problem.bound_and_gradients`. It must not read values back from an accelerator.
        """

    def check_freeze(self) -> None:
        """Raise unless the rule can leave a replica out while the others go on."""
        raise ValueError(
            f"{type(self).__name__} cannot leave out a replica that breaks down: use on_divergence='raise'"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain data on which later steps depend; nothing by default."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        if state:
            raise NotImplementedError(f"{type(self).__name__} has a state_dict and no load_state_dict")


class Rule(Checked, ABC):
    """The settings of a rule: a frozen dataclass whose fields are plain data or frozen dataclasses.

    The fields identify the rule: a checkpoint written with other fields is refused.

    Attributes:
        default_num_samples: draws a step if `gilib.fit` is not given `num_samples`.
        supports_kl_weight: whether the objective contains a Kullback-Leibler term that `kl_weight` can
            weight.
        divides_by_kl_weight: whether `kl_weight` must never be zero.
        schedule: of the learning rate, where a rule has such a field; None: the rate is constant.
    """

    default_num_samples: ClassVar[int] = 5
    supports_kl_weight: ClassVar[bool] = True
    divides_by_kl_weight: ClassVar[bool] = False
    schedule: Schedule | None = None

    def factor(self, step: int, steps: int) -> float:
        """Return the learning rate's factor at `step` (from 0) of `steps`; 1 without a schedule."""
        return 1.0 if self.schedule is None else self.schedule(step, steps)

    def total(self, steps: int) -> int | None:
        """Return the total number of steps if the training depends on it, for `check_total` to compare.

        A rule that reads `Problem.steps` for more than its schedule must return it.
        """
        return steps if self.schedule is not None and self.schedule.needs_total else None

    def check_total(self, kept: int | None, steps: int) -> None:
        """Raise a `CheckpointError` if the schedule of the earlier part had another number of steps."""
        if kept not in (None, steps):
            raise CheckpointError(
                f"the learning rates of this training follow {self.schedule} over {kept} "
                f"steps, and cannot go on over {steps}: ask for steps={kept}, or choose another file"
            )

    @abstractmethod
    def begin(self, problem: Problem) -> RunningRule:
        """Return the rule at work on a problem.

        Raises:
            ValueError: if the rule cannot train this problem.
        """
