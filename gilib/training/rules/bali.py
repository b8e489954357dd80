"""Bayesian layerwise inference: every layer is a regression onto targets that gradients propose."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gilib.arguments import Positive
from gilib.linalg import failures_as_nan, readable
from gilib.persistence import CheckpointError
from gilib.regression.joint import JointState, Place
from gilib.regression.moments import Residuals
from gilib.training.gradients.objective import Batch
from gilib.training.rules.base import Problem, Rule, RunningRule
from gilib.training.rules.kept import KeptRegression, check_first
from gilib.training.rules.layerwise import (
    LayerRegression,
    check_parameters,
    check_passes,
    layers_of,
    regression_of,
)
from gilib.training.rules.numbers import Numbers, rate_at, steps_of
from gilib.training.rules.passes import Passes, PassResult
from gilib.training.schedules import CosineDecay, Schedule
from gilib.validation import check_choice

PRIORS = ("absolute", "relative")
SENSIBLE_BATCH = 100


@dataclass(frozen=True)
class Bali(Rule):
    """BALI (Kurle et al., 2024, Algorithm 1) for networks of layers with `Conjugate`.

    A step draws the weights, passes the minibatch forward, and back-propagates the negative log likelihood to
    the outputs F of every layer: g `[B, O]`, one gradient for each point. A layer is then a regression from
    its inputs X̃, divided by the root of their number, onto pseudo-targets

        Y = F - α g / √v,    v ← (1-γ) v + γ mean(g²)                                      (Eqs. 18 to 20)

    (v by output unit), whose statistics enter moving averages with the bias-corrected rate
    γ = β / (1 - (1-β)^t), as `gilib.regression.joint` says. With a likelihood of Gaussian noise the last
    layer takes the true targets, and the noise covariance that it infers becomes the likelihood's.

    Priors: in the paper (prior="relative") a layer's prior is relative to its noise, Cov W̃ = Σ ⊗ V_0. That
    overrules few data where their noise is small; and as Σ of a hidden layer tells the length of gradient
    steps, it fades as they shrink. With prior="absolute", ours, V_0⁻¹ = κ P̃, P̃ being the prior precision of
    W̃ itself and κ = α / √(mean v), or, where targets are true, the mean of the noise variances. At fixed
    points of steps without noise the slope of the log likelihood then balances that of the layers' priors,
    but for a factor √(v_o / mean v) at output o.

    Set the prior: under `NealPrior()`, of variance 1, few data may be underfitted, up to a constant, and
    nothing warns of it. Of what was searched on nine UCI sets, variance 3, `NealPrior(3**0.5)`, with lr=1.0
    and variance 1 with lr=0.3 served best on the whole. Sets differ: see held-out data, and *BALI's
    benchmarks*.

    The paper has dense layers only. Here a convolution is a regression too, from its windows, each of which
    is an observation: N is then the number of points times that of windows, and means go over both.

    The trace of `gilib.fit` is the ELBO before each step, which the rule does not maximise. One draw a step
    is the paper's; of more statistics are averaged. `estimator="pointwise"` samples outputs in place of
    weights (BALI-L, App. F), but at the first step.

    Args:
        lr: α, the length of the gradient steps of the targets.
        update_rate: β, of the moving averages, above 0 and at most 1; 1: only the last minibatch counts.
        prior: "absolute" or "relative".
        schedule: of α: a factor for every step; None: 1. Default: 1 for half the steps, then down to a tenth.
        deterministic: whether steps after the first use the mean weights in place of a draw (App. F).
        keep_moments: whether the inputs' second moments, at the first layer, are those of all points, taken
            once, and factored anew only where the strength κ of the prior has moved by a tenth: faster on a
            CPU where inputs are many. For networks that begin with a dense layer.

    >>> import gilib
    >>> x = torch.linspace(-1, 1, 100)[:, None]
    >>> conjugate, prior = gilib.posteriors.Conjugate(), gilib.NealPrior(3**0.5)
    >>> net = gilib.models.mlp(1, (20,), 1, posterior=conjugate, prior=prior)
    >>> noise = gilib.Gaussian(1.0, learn=True)
    >>> history = gilib.fit(net, noise, x, x.sin(), steps=5, rule=Bali(), progress=False)
    >>> gilib.predict(net, noise, x).mean.shape
    torch.Size([100, 1])
    """

    samples: ClassVar[int] = 1
    tempers: ClassVar[bool] = False
    lr: Positive = 0.3
    update_rate: Positive = 0.2
    prior: str = "absolute"
    schedule: Schedule | None = CosineDecay()
    deterministic: bool = False
    keep_moments: bool = False

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        if self.update_rate > 1.0:
            raise ValueError(f"update_rate is at most 1, no memory at all, got {self.update_rate}")
        check_choice(self.prior, PRIORS, "prior")

    def begin(self, problem: Problem) -> RunningBali:
        """The rule at work.

        Raises:
            ValueError: for other layers, learned parameters, noise or arithmetic than it serves.
        """
        return RunningBali(self, problem)


class RunningBali(RunningRule):
    """All layers' regressions; their state is in the buffers of the posteriors."""

    def __init__(self, rule: Bali, problem: Problem):
        """Refuse what the rule does not serve."""
        super().__init__(problem)
        self.rule, self.warned = rule, False
        net, objective = problem.net, problem.objective
        layers = layers_of(net)
        self.regression = problem.likelihood.infers_noise(net.replicas)
        check_parameters(problem, self.regression)
        if objective.arithmetic != "full":
            raise ValueError(
                f"BALI reads what enters layers: use arithmetic='full', got {objective.arithmetic!r}"
            )
        check_passes(problem, layers, self.regression)
        last = len(layers) - 1 if self.regression else None
        self.layers = [regression_of(layer, net.replicas, k == last) for k, layer in enumerate(layers)]
        self.counts: list[int | Tensor] = []
        self.versions: list[int] = []
        self.numbers = Numbers(self.layers[0].prior, len(layers), problem.steady)
        self.kept = None
        if rule.keep_moments:
            check_first(net, layers)
            self.kept = self.layers[0] = KeptRegression(layers[0], net.replicas, last == 0, problem)
        self.passes = Passes(problem, self.layers, rule.deterministic)

    def check_freeze(self) -> None:
        """Every state has the replica axis."""

    @property
    def recordable(self) -> bool:  # type: ignore[override]
        """Moments that are kept are renewed when the host sees fit."""
        return self.kept is None

    def prepare(self, step: int) -> None:
        """Set α and γ; how many steps there have been is read where they begin, or were written."""
        if self.versions and self.versions != self._versions():  # a callback has loaded another state
            self.counts.clear()
            self.versions = self._versions()
            if self.kept is not None:
                self.kept.forget()
        if not self.counts:
            self.counts = [steps_of(layer.posterior.steps, self.active) for layer in self.layers]
        self.counts = [count + 1 for count in self.counts]
        rates = [rate_at(self.rule.update_rate, count) for count in self.counts]
        self.numbers.set(self.rule.lr * self.rule.factor(step, self.problem.steps), rates)
        if self.kept is not None:
            self.kept.prepare()

    def step(self, batch: Batch) -> Tensor:
        """Average the statistics of one minibatch, at all layers."""
        passed = self.passes(batch)
        samples, points = len(batch.noise.draw), batch.x.shape[-1 - len(self.problem.net.input_shape)]
        share = batch.fraction / (samples * points)
        self._warn_of_few(points / batch.fraction)
        squares = [
            layer.squares(gradient).mul_(share / layer.windows)
            for layer, gradient in zip(self.layers, passed.gradients, strict=False)
        ]
        bound, *squares = self.problem.sum_over_processes([passed.bound, *squares])
        with torch.inference_mode():
            self._average(batch, passed, squares, share * self.problem.objective.num_data)
        if self.regression:
            with torch.no_grad():
                self.problem.likelihood.set_noise(self.layers[-1].posterior.noise_covariance)
        return bound

    def _average(self, batch: Batch, passed: PassResult, squares: Sequence[Tensor], weight: float) -> None:
        """The new state of every layer."""
        rates = self.numbers.rates
        scales, moments = [layer.posterior.mean_square for layer in self.layers], []
        for k, (layer, step, place) in enumerate(zip(self.layers, passed.steps, passed.places, strict=True)):
            if layer.true_targets:
                gap = batch.y - step.output
            else:
                scales[k] = layer.scale(squares[k], rates[k])
                gap = passed.gradients[k] * layer.by_output(layer.lengths(scales[k], self.numbers.lr))
            moments.append(layer.residuals(step, place, gap, weight))
        flat = iter(self.problem.sum_over_processes([value for own in moments for value in own]))
        moved = [
            self._moved(layer, Residuals(next(flat), next(flat), next(flat)), scale, rate, place)
            for layer, scale, rate, place in zip(self.layers, scales, rates, passed.places, strict=True)
        ]
        self._take(moved, scales, passed.bound)

    def _versions(self) -> list[int]:
        """How often the counts of steps have been written."""
        return [layer.posterior.steps._version for layer in self.layers]

    def _take(self, moved: Sequence[JointState], scales: Sequence[Tensor], bound: Tensor) -> None:
        """Keep the new states where all of them are numbers; where not, factorisations may have raised."""
        for layer, scale in zip(self.layers, scales, strict=True):
            bound = bound if layer.true_targets else bound + scale.sum(-1)
        if self.problem.objective.freeze or not readable(bound):
            for state in moved:  # C is made of all else in a state
                bound = bound + state.scale_tril.sum((-2, -1))
        self.active &= bound.isfinite()
        active = None if readable(bound) and bool(self.active.all()) else self.active
        for layer, state, scale in zip(self.layers, moved, scales, strict=True):
            own, observed = layer.posterior, layer.windows * self.problem.objective.num_data
            own.move(state, scale, own.prior_df + observed, active)
        if self.kept is not None:
            self.kept.moved(active is not None)
        self.versions = self._versions()

    def _moved(
        self,
        layer: LayerRegression,
        batch: Residuals,
        scale: Tensor,
        rate: float | Tensor,
        place: Place,
    ) -> JointState:
        """The state after the minibatch; it is not finite where the minibatch was not."""
        strength = layer.strength(self.rule.prior, self.numbers.lr, scale)
        with failures_as_nan() if self.problem.objective.freeze else nullcontext():
            return layer.layer.located("", layer.averaged, batch, strength, rate, place)

    def _warn_of_few(self, points: float) -> None:
        """Once, at the first step."""
        if not self.warned and round(points) < min(SENSIBLE_BATCH, self.problem.objective.num_data):
            warnings.warn(
                f"BALI averages regressions of {round(points)} points, each of which is to tell the noise: "
                "take a batch_size of 1000, or all points",
                stacklevel=2,
            )
        self.warned = True

    def state_dict(self) -> dict[str, Any]:
        """For how many steps a schedule was made that depends on them; the rest is in buffers."""
        needs = self.rule.schedule is not None and self.rule.schedule.needs_total
        strengths = {} if self.kept is None else {"strengths": self.kept.strengths}
        return {"steps": self.problem.steps if needs else None} | strengths

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`.

        Raises:
            CheckpointError: if the schedule of the first part was that of another number of steps.
        """
        if state["steps"] not in (None, self.problem.steps):
            raise CheckpointError(
                f"the steps of this training follow {self.rule.schedule} over {state['steps']} of them, and "
                f"cannot go on over {self.problem.steps}: ask for steps={state['steps']}, or choose another "
                "file"
            )
        if self.kept is not None:
            self.kept.strengths = state["strengths"].to(self.kept.strengths)
