"""Stochastic gradient Hamiltonian Monte Carlo for point estimates; Monte Carlo EM for other parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gilib.arguments import Count, CountOrZero, Positive
from gilib.network import Network
from gilib.posteriors import PointWeights
from gilib.randomness import standard_normal
from gilib.training.gradients.objective import Batch
from gilib.training.rules.adam import Adam, RunningWithAdam
from gilib.training.rules.base import Problem, Rule

MIN_SQUARE = 1e-16  # of a mean square gradient: it is zero for a parameter without influence


@dataclass(frozen=True)
class SGHMC(Rule):
    """A Markov chain over the unknowns of `PointEstimate` layers; Adam trains all others in burn-in.

    With U = -N · bound, which is minus the log joint density of targets and state, a step is (Chen, Fox &
    Guestrin, 2014, without an estimate of the gradient's own noise; Springenberg, Klein, Falkner & Hutter,
    2016)

        v ← (1 - α) v - ε² V^(-1/2) ∂U + N(0, 2 ε² α V^(-1/2)),    θ ← θ + v.

    During burn-in, the mean square gradient V adapts for each entry over a window of τ steps, which is short
    while the mean gradient g is large (ibid.). All three start from 1, the right-hand sides contain the old
    values, and ρ = 1 / (τ + 1):

        τ ← 1 + τ (1 - g² / V),    g ← g + ρ (∂U - g),    V ← V + ρ (∂U² - V).

    Also during burn-in, kernels, inducing inputs and noise take steps of Adam, with gradients at a state
    chosen at random from the last ones: moving-window Monte Carlo EM (Havasi, Hernández-Lobato &
    Murillo-Fuentes, 2018). After burn-in, V and these parameters stay fixed; `StoredStates` collects states.

    Three things bias the chain. First, the variance of a Gaussian target comes out too large by a fraction of
    about ε² V^(-1/2) ∂²U / 4. Second, the noise of minibatches and of hidden layers heats the chain. Third,
    while V adapts, it depends on the state: with small steps and gradients of little noise V ≈ ∂U². In that
    case let V stop early, by `adaptation`, so that the other parameters see states from the posterior.

    Args:
        burn_in: number of steps of burn-in; 0: V stays at 1, and only the state moves.
        lr: ε, the step size.
        momentum_decay: α, above 0 and at most 1.
        window: number of last states of burn-in from which Adam's state is chosen.
        base_optimiser: the rule for all other parameters; its schedule runs over the burn-in.
        adaptation: number of steps of burn-in during which V adapts; None: all of them, as in the papers.

    >>> SGHMC(burn_in=5000).window
    300
    """

    burn_in: CountOrZero
    lr: Positive = 1e-2
    momentum_decay: Positive = 0.05
    window: Count = 300
    base_optimiser: Adam = Adam()
    adaptation: CountOrZero | None = None

    def __post_init__(self) -> None:
        if self.momentum_decay > 1.0:
            raise ValueError(
                f"momentum_decay must be at most 1, which keeps no momentum, got {self.momentum_decay}"
            )
        if self.adaptation is not None and self.adaptation > self.burn_in:
            raise ValueError(
                f"adaptation is a part of burn-in, so at most {self.burn_in} steps, got {self.adaptation}"
            )

    @property
    def adaptive_steps(self) -> int:
        """Number of steps during which the mean square gradient V adapts."""
        return self.burn_in if self.adaptation is None else self.adaptation

    def begin(self, problem: Problem) -> RunningSGHMC:
        return RunningSGHMC(self, problem)


def point_parameters(net: Network) -> dict[str, nn.Parameter]:
    """Return the parameters that `SGHMC` samples: the learned unknowns of point estimates, by name."""
    points = {name for name, module in net.named_modules() if isinstance(module, PointWeights)}
    named = net.named_parameters()
    found = {name: p for name, p in named if name.rpartition(".")[0] in points and p.requires_grad}
    if not found:
        raise ValueError(
            "SGHMC is for layers with PointEstimate that are learned, but the network has none: build it "
            "with posterior=gilib.PointEstimate(), or train it by gilib.Adam"
        )
    return found


class RunningSGHMC(RunningWithAdam):
    """One chain for every replica; all chains step together."""

    rule: SGHMC

    def __init__(self, rule: SGHMC, problem: Problem):
        super().__init__(rule, problem)
        self.recordable = problem.device.type == "cpu"  # a graph would repeat the noise that a step draws
        sampled = point_parameters(problem.net)
        self.values = list(sampled.values())
        self.coordinates = [Coordinates.at_rest(value.detach()) for value in self.values]
        others = {name: p for name, p in problem.parameters.items() if name not in sampled}
        self.window: list[Tensor] = []  # [window, R, I, O] each; the oldest state is overwritten first
        if others and rule.burn_in:
            self.leave_to_adam(rule.base_optimiser, others, rule.burn_in)
            self.window = [value.new_zeros((rule.window, *value.shape)).detach() for value in self.values]
        self.place = torch.zeros(1, dtype=torch.long, device=problem.device)  # where the state is written
        self.filled = self.number()  # how many there are then

    def check_freeze(self) -> None:
        """Raise unless Adam's parameters have the replica axis; sampled states always have it."""
        if self.adam is not None:
            self.adam.check_freeze()

    def prepare(self, step: int) -> None:
        self.training, self.adapting = step < self.rule.burn_in, step < self.rule.adaptive_steps
        self.phase = self.training + self.adapting
        if self.training:
            super().prepare(step)
            self.place.fill_(step % self.rule.window)
            self.filled.fill_(min(step + 1, self.rule.window))

    def step(self, batch: Batch) -> Tensor:
        training = self.adam is not None and self.training
        bound, gradients = self.problem.bound_and_gradients(batch, self.values)
        self.active &= bound.isfinite()
        for gradient in gradients:
            self.active &= gradient.isfinite().all(-1).all(-1)
        if training:
            for ring, value in zip(self.window, self.values, strict=True):
                ring.index_copy_(0, self.place, value.detach()[None])
        self._move(gradients, self.adapting)
        if training:
            self._train(batch)
        return bound

    @torch.no_grad()
    def _move(self, gradients: Sequence[Tensor], adapting: bool) -> None:
        rule, moving = self.rule, self.active[..., None, None]
        for value, own, gradient in zip(self.values, self.coordinates, gradients, strict=True):
            slope = self.problem.objective.num_data * gradient  # the bound is per data point
            if adapting:
                own.adapt(slope)
            # Frozen replicas draw noise, too, so that the others see the same noise as without them.
            noise = self._normal((1, *value.shape), value.dtype)[0]
            own.momentum.copy_(own.pushed(slope, noise, rule.lr, rule.momentum_decay))
            value.add_(own.momentum.where(moving, 0.0))

    def _normal(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return standard_normal(shape, self.problem.generator, dtype, self.problem.device)

    def _train(self, batch: Batch) -> None:
        """Take Adam's step, with each replica at a random state from its window."""
        normal = self._normal((1, *self.problem.net.replicas), torch.float64)[0]
        with self._elsewhere(chosen(self.window, self.filled, normal)):
            bound, gradients = self.problem.bound_and_gradients(batch, self.others)
        self.active &= bound.isfinite()
        self.update_others(gradients)

    @contextmanager
    def _elsewhere(self, state: Sequence[Tensor]) -> Iterator[None]:
        here = [value.detach().clone() for value in self.values]
        try:
            self._place(state)
            yield
        finally:
            self._place(here)

    @torch.no_grad()
    def _place(self, state: Sequence[Tensor]) -> None:
        for value, own in zip(self.values, state, strict=True):
            value.copy_(own)

    def state_dict(self) -> dict[str, Any]:
        coordinates = [dict(vars(own)) for own in self.coordinates]
        return {"coordinates": coordinates, "window": self.window, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for own, saved in zip(self.coordinates, state["coordinates"], strict=True):
            for name, value in vars(own).items():
                value.copy_(saved[name])
        for ring, saved in zip(self.window, state["window"], strict=True):
            ring.copy_(saved)
        super().load_state_dict(state)


@dataclass
class Coordinates:
    """The momenta and scales of one sampled parameter; each has its shape and changes in place."""

    momentum: Tensor  # v
    memory: Tensor  # τ
    mean: Tensor  # g, the mean of the gradient
    square: Tensor  # V, the mean of the squared gradient

    @classmethod
    def at_rest(cls, value: Tensor) -> Coordinates:
        """Return zero momentum and unit scales, as before the first step."""
        return cls(torch.zeros_like(value), *(torch.ones_like(value) for _ in range(3)))

    def adapt(self, slope: Tensor) -> None:
        """Update τ, g and V with a gradient ∂U."""
        rate = 1.0 / (self.memory + 1.0)
        self.memory.mul_(1.0 - self.mean.square() / self.square).add_(1.0)
        self.mean.add_(rate * (slope - self.mean))
        self.square.add_(rate * (slope.square() - self.square)).clamp_(min=MIN_SQUARE)

    def pushed(self, slope: Tensor, noise: Tensor, lr: float, decay: float) -> Tensor:
        """Return the momentum after a gradient ∂U, given standard normals."""
        root = self.square.sqrt()
        spread = lr * math.sqrt(2.0 * decay)
        return (1.0 - decay) * self.momentum - lr**2 / root * slope + spread / root.sqrt() * noise


def chosen(window: Sequence[Tensor], filled: int | Tensor, normal: Tensor) -> list[Tensor]:
    """Choose one of the first `filled` states for every replica, uniformly, by a standard normal, `[R]`."""
    place = (torch.special.ndtr(normal) * filled).clamp(max=filled - 1).long()
    return [ring.take_along_dim(place[None, ..., None, None], 0).squeeze(0) for ring in window]
