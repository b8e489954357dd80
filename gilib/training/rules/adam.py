"""The default rule, Adam on the bound; and a base class of rules that leave some parameters to Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from gilib.arguments import Fraction, Positive
from gilib.config import plain
from gilib.posteriors import ConjugateWeights
from gilib.training.gradients.objective import Batch
from gilib.training.rules.base import Problem, Rule, RunningRule
from gilib.training.rules.optimiser import NetworkAdam, Rate, ReplicaAdam
from gilib.training.schedules import Schedule
from gilib.validation import check_positive


@dataclass(frozen=True)
class Adam(Rule):
    """Adam (Kingma & Ba, 2015) on the bound that `gilib.fit` estimates at every step.

    Args:
        lr: learning rate, or R rates, one for each replica. Raise it to 0.03 or 0.05 if the bound still
            climbs at the end; lower it if the bound jumps. A high rate needs a schedule that ends at zero.
        groups: other learning rates for some parameters, by the name of a parameter or of a module that holds
            them, as in `{"inducing_points": 1e-3, "layers.layers.0": 1e-2, "likelihood": 1e-3}`. Names are
            those of `Problem.parameters`; of two that match, the later one counts.
        schedule: a factor for all learning rates at every step; None: 1.
        betas: decay of the first and second moments.
        eps: added to the root of the second moment.

    >>> from gilib.training import LinearDecay
    >>> Adam(3e-2, groups={"likelihood": 1e-3}, schedule=LinearDecay()).lr
    0.03
    """

    lr: Rate = 1e-2
    groups: Mapping[str, Rate] = field(default_factory=dict)
    schedule: Schedule | None = None
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Positive = 1e-8

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", _checked(self.lr, "lr"))
        groups = {name: _checked(rate, f"groups[{name!r}]") for name, rate in self.groups.items()}
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "betas", tuple(self.betas))

    def begin(self, problem: Problem) -> RunningAdam:
        """Return Adam at work on the problem's parameters.

        Raises:
            ValueError: for a number of rates other than R, for names that match nothing, or if there is
                nothing to train; and for layers with `Conjugate`, which have no parameters.
        """
        if any(isinstance(module, ConjugateWeights) for module in problem.net.modules()):
            raise ValueError(
                "Adam cannot train layers with gilib.posteriors.Conjugate, which have no parameters: if all "
                "layers with weights have it, use fit(..., rule=gilib.training.Bali()); it cannot be mixed "
                "with other posteriors"
            )
        return RunningAdam(self, problem)

    def rates(
        self, parameters: Mapping[str, nn.Parameter], replicas: int | None
    ) -> dict[str, tuple[nn.Parameter, Rate]]:
        """Return every parameter with its learning rate: a number, or one number for each replica."""
        _check_number(self.lr, "lr", replicas)
        rates: dict[str, Rate] = dict.fromkeys(parameters, self.lr)
        for prefix, rate in self.groups.items():
            _check_number(rate, f"groups[{prefix!r}]", replicas)
            matching = [name for name in parameters if f"{name}.".startswith(f"{prefix}.")]
            if not matching:
                raise ValueError(
                    f"groups: no parameter is, or belongs to, {prefix!r}; parameters are "
                    f"{', '.join(parameters)}"
                )
            rates.update(dict.fromkeys(matching, rate))
        return {name: (parameter, rates[name]) for name, parameter in parameters.items()}


class RunningAdam(RunningRule):
    """Adam with its moments: one for all replicas at once if every parameter has the replica axis."""

    recordable = True

    def __init__(self, rule: Adam, problem: Problem):
        super().__init__(problem)
        self.rule, self.optimiser = rule, _optimiser(rule, problem)

    def prepare(self, step: int) -> None:
        self.optimiser.advance(self.rule.factor(step, self.problem.steps))

    def step(self, batch: Batch) -> Tensor:
        """Take one step up the bound, for replicas whose bound and gradient have always been finite."""
        bound, gradients = self.problem.bound_and_gradients(batch, self.optimiser.parameters)
        self.active &= bound.isfinite()
        self.optimiser.update(gradients, self.active)
        return bound

    def check_freeze(self) -> None:
        """Raise unless every parameter has the replica axis: a shared one would spread a failure to all."""
        if self.optimiser.per_replica:
            return
        replicas = self.problem.net.replicas
        shared = {name: list(p.shape) for name, p in self.problem.shared_parameters().items()}
        raise ValueError(
            "on_divergence='freeze' needs every learned parameter to have the replica axis "
            f"{list(replicas)}, but replicas share {shared}: give each its own (for example "
            f"Gaussian(learn=True, replicas={replicas})), or use on_divergence='raise'"
        )

    def state_dict(self) -> dict[str, Any]:
        return {"adam": self.optimiser.state_dict(), "steps": self.rule.total(self.problem.steps)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rule.check_total(state["steps"], self.problem.steps)
        self.optimiser.load_state_dict(state["adam"])


class RunningWithAdam(RunningRule):
    """A rule that trains some parameters in its own way, at `rate`, and leaves all others to Adam."""

    adam: RunningAdam | None = None  # Adam at work on the others; None if there are none

    def __init__(self, rule: Any, problem: Problem):
        super().__init__(problem)
        self.rule, self.rate = rule, self.number()

    def leave_to_adam(self, rule: Adam, others: Mapping[str, nn.Parameter], steps: int | None = None) -> None:
        """Start Adam on the other parameters, if there are any, for all steps or the first `steps`."""
        if others:
            total = self.problem.steps if steps is None else steps
            self.adam = rule.begin(replace(self.problem, parameters=others, steps=total))

    @property
    def others(self) -> list[nn.Parameter]:
        """The parameters that Adam trains, in the order of the gradients that it takes."""
        return [] if self.adam is None else self.adam.optimiser.parameters

    def prepare(self, step: int) -> None:
        self.rate.fill_(self.rule.lr * self.rule.factor(step, self.problem.steps))
        if self.adam is not None:
            self.adam.prepare(step)

    def update_others(self, gradients: Sequence[Tensor]) -> None:
        """Take Adam's step along the gradients of `others`."""
        if self.adam is not None:
            self.adam.optimiser.update(gradients, self.active)

    def state_dict(self) -> dict[str, Any]:
        adam = None if self.adam is None else self.adam.state_dict()
        return {"adam": adam, "steps": self.rule.total(self.problem.steps)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rule.check_total(state["steps"], self.problem.steps)
        if self.adam is not None:
            self.adam.load_state_dict(state["adam"])


def _optimiser(rule: Adam, problem: Problem) -> NetworkAdam | ReplicaAdam:
    parameters, replicas = problem.parameters, problem.net.replicas
    if not parameters:
        raise ValueError("nothing to train: network and likelihood have no learned parameters")
    if len(replicas) == 1 and not problem.shared_parameters():
        return ReplicaAdam(rule.rates(parameters, replicas[0]), replicas[0], rule.betas, rule.eps)
    return NetworkAdam(rule.rates(parameters, None), problem.device, rule.betas, rule.eps)


def _checked(rate: Rate, what: str) -> Rate:
    rate = plain(rate)
    if not isinstance(rate, Sequence):
        check_positive(rate, what)
        return rate
    for r, value in enumerate(rate):
        check_positive(value, f"{what}[{r}]")
    return tuple(rate)


def _check_number(rate: Rate, what: str, replicas: int | None) -> None:
    if isinstance(rate, Sequence) and (replicas is None or len(rate) != replicas):
        wanted = f"one number or {replicas}" if replicas else "one number (not every parameter has replicas)"
        raise ValueError(f"{what}: wanted {wanted}, got {len(rate)} learning rates")
