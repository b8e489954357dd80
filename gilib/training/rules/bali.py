"""Bayesian layerwise inference (BALI): every layer is a regression onto targets that gradients propose."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from gilib.arguments import Positive, one_of
from gilib.arithmetic import exact_products
from gilib.convolution import window_moments
from gilib.draws import Drawn, Evaluated, record
from gilib.layers.conv import Conv2d, Conv2dFunction
from gilib.layers.linear import Linear, LinearFunction
from gilib.layers.weights import WeightLayer
from gilib.linalg import failures_as_nan, readable
from gilib.linalg.products import matmul
from gilib.network import Network
from gilib.posteriors import ConjugateWeights
from gilib.randomness import Noise
from gilib.regression import joint
from gilib.regression.joint import JointState, Place, Residuals
from gilib.training.gradients.objective import Batch
from gilib.training.rules.base import Problem, Rule, RunningRule
from gilib.training.schedules import CosineDecay, Schedule

SENSIBLE_BATCH = 100  # points; a smaller minibatch brings a warning
STALE = 0.1  # relative change of the prior's strength after which V⁻¹ is factorised again


@dataclass(frozen=True)
class Bali(Rule):
    """BALI (Kurle et al., 2024, Algorithm 1) for networks whose layers have `Conjugate` posteriors.

    A step draws the weights, passes the minibatch forward, and back-propagates the negative log likelihood to
    the outputs F of every layer, which gives g `[B, O]`. A layer is then a regression from its inputs X̃,
    divided by the square root of their number, onto pseudo-targets

        Y = F - α g / √v,    v ← (1-γ) v + γ mean(g²)                                      (Eqs. 18 to 20)

    with one v for each output unit. The statistics enter moving averages with the bias-corrected rate
    γ = β / (1 - (1-β)^t), see `gilib.regression.joint`. With a likelihood of Gaussian noise, the last layer
    uses the true targets, and the noise covariance that it infers becomes the likelihood's.

    In the paper (`prior="relative"`), a layer's prior is relative to the layer's noise: Cov W̃ = Σ ⊗ V_0. It
    overrules data that are few, with little noise, and in a hidden layer, where Σ measures the length of
    gradient steps, it fades as they shrink. With `prior="absolute"`, our default, V_0⁻¹ = κ P̃, where P̃ is
    the prior precision of W̃ itself. Here κ = α / √(mean v) in a layer with pseudo-targets, and the mean of
    the noise variances in a layer with true targets. At fixed points of steps without noise, the gradient of
    the log likelihood then balances that of the layers' log priors, up to a factor √(v_o / mean v) at output
    o.

    Choose the prior's variance on held-out data: under `NealPrior()`, with variance 1, the network may
    underfit few data, even to a constant, without a warning. Over nine UCI sets variance 3,
    `NealPrior(3**0.5)`, with lr=1.0, and variance 1 with lr=0.3 were best; see the chapter *Does BALI work?*.

    A convolution, which the paper does not have, is a regression in which each window is an observation: N is
    the number of points times the number of windows, and means run over both.

    The trace of `gilib.fit` is the ELBO before each step, which this rule does not maximise. The paper takes
    one draw a step; statistics of several draws are averaged. With `estimator="pointwise"`, steps after the
    first sample outputs instead of weights (BALI-L, App. F).

    Args:
        lr: α, the length of the gradient steps that define the targets.
        update_rate: β, the rate of the moving averages, above 0 and at most 1; with 1, only the last
            minibatch counts.
        prior: "absolute" or "relative".
        schedule: a factor for α at every step; None: 1. Default: 1 for half of the steps, then down to a
            tenth.
        deterministic: whether steps after the first use the mean weights instead of a draw (App. F).
        keep_moments: whether the first layer computes the second moments of its inputs once, from all points.
            It then factorises again only when the strength κ of the prior has changed by a tenth. This is
            faster on a CPU if there are many inputs. For networks that begin with a dense layer.

    >>> import gilib
    >>> x = torch.linspace(-1, 1, 100)[:, None]
    >>> conjugate, prior = gilib.posteriors.Conjugate(), gilib.NealPrior(3**0.5)
    >>> net = gilib.models.mlp(1, (20,), 1, posterior=conjugate, prior=prior)
    >>> noise = gilib.Gaussian(1.0, learn=True)
    >>> history = gilib.fit(net, noise, x, x.sin(), steps=5, rule=Bali(), progress=False)
    >>> gilib.predict(net, noise, x).mean.shape
    torch.Size([100, 1])
    """

    default_num_samples: ClassVar[int] = 1
    supports_kl_weight: ClassVar[bool] = False
    lr: Positive = 0.3
    update_rate: Positive = 0.2
    prior: Annotated[str, one_of(("absolute", "relative"))] = "absolute"
    schedule: Schedule | None = CosineDecay()
    deterministic: bool = False
    keep_moments: bool = False

    def __post_init__(self) -> None:
        if self.update_rate > 1.0:
            raise ValueError(
                f"update_rate must be at most 1, where only the last minibatch counts, got {self.update_rate}"
            )

    def begin(self, problem: Problem) -> RunningBali:
        return RunningBali(self, problem)


class PassResult(NamedTuple):
    """The results of a step's forward and backward pass, by layers with weights."""

    steps: Sequence[Evaluated]
    places: Sequence[Place]  # the weights at which residuals are computed
    gradients: Sequence[Tensor]  # -g, of the log likelihood, [S, R, B, O], for layers with pseudo-targets
    bound: Tensor  # of this process's share of the minibatch, [R]


class RunningBali(RunningRule):
    """BALI at work: one regression for each layer, whose state is in the buffers of the posteriors."""

    lr: Tensor  # α of the next step, which the host writes between steps
    rates: list[Tensor]  # γ of every layer, [R], likewise

    def __init__(self, rule: Bali, problem: Problem):
        super().__init__(problem)
        self.rule, self.warned = rule, False
        self.recordable = not rule.keep_moments  # with them, the host decides what to do
        net, objective = problem.net, problem.objective
        layers = layers_of(net)
        self.regression = problem.likelihood.infers_noise(net.replicas)
        check_parameters(problem, self.regression)
        if objective.arithmetic != "full":
            raise ValueError(
                f"BALI reads the inputs of layers: use arithmetic='full', got {objective.arithmetic!r}"
            )
        last = len(layers) - 1 if self.regression else None
        self.layers = [regression_of(layer, net.replicas, k == last) for k, layer in enumerate(layers)]
        check_passes(problem, self.layers)
        self.counts: list[int | Tensor] = []
        self.versions: list[int] = []
        like = self.layers[0].prior[..., 0]
        self.lr, self.rates = like.new_zeros(()), [torch.zeros_like(like) for _ in layers]
        self.kept = None
        if rule.keep_moments:
            check_first(net, layers)
            self.kept = self.layers[0] = KeptRegression(layers[0], net.replicas, last == 0, problem)

    def check_freeze(self) -> None:
        """Accept every network: all states have the replica axis."""

    def prepare(self, step: int) -> None:
        if self.versions != self._versions():  # at the start, and if a callback has loaded another state
            if self.kept is not None and self.versions:
                self.kept.forget()
            self.counts = [steps_of(layer.posterior.steps, self.active) for layer in self.layers]
            self.versions = self._versions()
        self.counts = [count + 1 for count in self.counts]
        lr = self.rule.lr * self.rule.factor(step, self.problem.steps)
        rates = [rate_at(self.rule.update_rate, count) for count in self.counts]
        for own, value in zip([self.lr, *self.rates], [lr, *rates], strict=True):
            own.copy_(value) if isinstance(value, Tensor) else own.fill_(value)

    def step(self, batch: Batch) -> Tensor:
        passed = self._passes(batch)
        samples, points = len(batch.noise.draw), batch.x.shape[-1 - len(self.problem.net.input_shape)]
        share = batch.fraction / (samples * points)
        self._warn_of_few(points / batch.fraction)
        squares = [
            layer.rows(gradient).square().sum(-2).mul_(share / layer.windows)  # [R, O]
            for layer, gradient in zip(self.layers, passed.gradients, strict=False)
        ]
        bound, *squares = self.problem.sum_over_processes([passed.bound, *squares])
        with torch.inference_mode():
            self._average(batch, passed, squares, share * self.problem.objective.num_data)
        if self.regression:
            with torch.no_grad():
                self.problem.likelihood.set_noise(self.layers[-1].posterior.noise_covariance)
        return bound

    def _passes(self, batch: Batch) -> PassResult:
        objective, likelihood = self.problem.objective, self.problem.likelihood
        with self.problem.propagate_failures():
            with torch.no_grad():
                drawn = self._drawn(batch)
            recording = record(drawn.function, batch.x, variables=True)
            log_likelihood = likelihood.log_prob(recording.output, batch.y)  # [S, R, B]
            pairs = zip(recording.drawn, self.layers, strict=True)
            outputs = [step.output for step, layer in pairs if not layer.true_targets]
            gradients = torch.autograd.grad(log_likelihood.sum(), outputs) if outputs else ()
        with torch.no_grad():
            bound = (log_likelihood.mean(-1) + drawn.density / objective.num_data).mean(0)
            places = self._places(batch, recording.drawn)
        return PassResult(recording.drawn, places, gradients, batch.fraction * bound)

    def _is_first(self, batch: Batch) -> bool:
        return batch.step == 0 and not bool(self.layers[0].posterior.steps.any())

    def _drawn(self, batch: Batch) -> Drawn:
        """Return the functions of a step; the first one draws weights, as there is no mean yet."""
        objective = self.problem.objective
        if objective.estimator != "draw" and self._is_first(batch):
            return self.problem.net.draw(objective.num_samples, generator=self.problem.generator)
        return objective.drawn(self._noise(batch))

    def _noise(self, batch: Batch) -> Noise:
        """Return the noise of a step's weights; zero if the step is to use the mean weights."""
        if self.rule.deterministic and not self._is_first(batch):
            return Noise(*map(torch.zeros_like, batch.noise))
        return batch.noise

    def _places(self, batch: Batch, steps: Sequence[Evaluated]) -> list[Place]:
        """Return the weights at which residuals are computed: those of the only draw, or a mean."""
        if self._is_first(batch):
            return [layer.start(step) for layer, step in zip(self.layers, steps, strict=True)]
        if self.problem.objective.estimator != "draw" or len(batch.noise.draw) > 1:
            return [Place(layer.posterior.mean) for layer in self.layers]
        parts = split_noise(self._noise(batch).draw[0], [layer.posterior for layer in self.layers])
        return [layer.place(step, own) for layer, step, own in zip(self.layers, steps, parts, strict=True)]

    def _average(self, batch: Batch, passed: PassResult, squares: Sequence[Tensor], weight: float) -> None:
        rates = self.rates
        scales, seen = [layer.posterior.mean_square for layer in self.layers], []
        for k, (layer, step, place) in enumerate(zip(self.layers, passed.steps, passed.places, strict=True)):
            if layer.true_targets:
                gap = batch.y - step.output
            else:
                scales[k] = layer.scale(squares[k], rates[k])
                gap = passed.gradients[k] * layer.by_output(layer.lengths(scales[k], self.lr))
            seen.append(layer.residuals(step, place, gap, weight))
        # One message for all layers: sums are taken over a flat list and then dealt out again.
        flat = iter(self.problem.sum_over_processes([value for own in seen for value in own]))
        moved = [
            self._moved(layer, Residuals(next(flat), next(flat), next(flat)), scale, rate, place)
            for layer, scale, rate, place in zip(self.layers, scales, rates, passed.places, strict=True)
        ]
        self._take(moved, scales, passed.bound)

    def _versions(self) -> list[int]:
        return [layer.posterior.steps._version for layer in self.layers]

    def _take(self, moved: Sequence[JointState], scales: Sequence[Tensor], bound: Tensor) -> None:
        """Store the new states, except in replicas where they are not finite."""
        for layer, scale in zip(self.layers, scales, strict=True):
            bound = bound if layer.true_targets else bound + scale.sum(-1)
        if self.problem.objective.freeze or not readable(bound):
            for state in moved:  # `scale_tril` is computed from all else in a state, so NaN anywhere is in it
                bound = bound + state.scale_tril.sum((-2, -1))
        self.active &= bound.isfinite()
        active = None if readable(bound) and bool(self.active.all()) else self.active
        for layer, state, scale in zip(self.layers, moved, scales, strict=True):
            own, observed = layer.posterior, layer.windows * self.problem.objective.num_data
            own.move(state, scale, own.prior_df + observed, active)
        self.versions = self._versions()

    def _moved(
        self, layer: LayerRegression, batch: Residuals, scale: Tensor, rate: Tensor, place: Place
    ) -> JointState:
        """Return a layer's state after the minibatch; it is not finite if the minibatch was not."""
        strength = layer.strength(self.rule.prior, self.lr, scale)
        with failures_as_nan() if self.problem.objective.freeze else nullcontext():
            return layer.layer.located("", layer.averaged, batch, strength, rate, place)

    def _warn_of_few(self, points: float) -> None:
        if not self.warned and round(points) < min(SENSIBLE_BATCH, self.problem.objective.num_data):
            warnings.warn(
                f"BALI averages regressions of {round(points)} points, and each must determine the noise: "
                "take a batch_size of 1000, or all points",
                stacklevel=2,
            )
        self.warned = True

    def state_dict(self) -> dict[str, Any]:
        """Return the total number of steps if the schedule depends on it; the other state is in buffers."""
        strengths = {} if self.kept is None else {"strengths": self.kept.strengths}
        return {"steps": self.rule.total(self.problem.steps)} | strengths

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rule.check_total(state["steps"], self.problem.steps)
        if self.kept is not None:
            self.kept.strengths = state["strengths"].to(self.kept.strengths)


class LayerRegression:
    """One dense layer with `Conjugate` as a regression, onto the targets of the data if `true_targets`."""

    windows = 1  # number of observations in a point

    def __init__(self, layer: WeightLayer, replicas: tuple[int, ...], true_targets: bool):
        hyperparameters, posterior = layer.modules_built()
        assert isinstance(posterior, ConjugateWeights)
        self.layer, self.posterior, self.true_targets = layer, posterior, true_targets
        if hyperparameters.noise_size:
            raise ValueError(
                f"{layer.describe()}: BALI takes priors without hyper-parameters to infer, such as "
                f"NealPrior, got {layer.prior!r}"
            )
        precision = hyperparameters.draw(posterior.mean.new_zeros(1, *replicas, 0))[0]
        if bool((precision.dense() != torch.diag_embed(precision.diagonal())).any()):
            raise ValueError(f"{layer.describe()}: BALI takes independent priors, got {layer.prior!r}")
        diagonal = precision.diagonal() / layer.fan_in
        self.prior = diagonal.expand(1, *replicas, layer.fan_in)[0]  # of W̃, [R, I]
        self.gram: Tensor | None = None  # reused memory for the second moments of a wide layer, [R, I, I]
        self.feature_scale = 1.0 / posterior.root_fan_in

    def scale(self, mean_square: Tensor, rate: Tensor) -> Tensor:
        """Return v after a minibatch, `[R, O]`; where no gradient arrived it stays, or κ would explode."""
        known = self.posterior.mean_square
        seen = mean_square.where(mean_square.any(-1, keepdim=True), known)
        return torch.lerp(known, seen, rate[..., None])

    def lengths(self, mean_square: Tensor, lr: Tensor) -> Tensor:
        """Return α / √v, `[R, O]`; it is finite even if v is zero, where the gradient is zero, too."""
        return lr * mean_square.clamp_min(torch.finfo(mean_square.dtype).tiny).rsqrt()

    def start(self, step: Evaluated) -> Place:
        """Return the mean of the drawn weights; at zero, the posterior's, residuals would be of low rank."""
        return Place(self.posterior.root_fan_in * weights_of(step).mean(0))

    def place(self, step: Evaluated, noise: Tensor) -> Place:
        """Return the drawn weights of a step with one sample, and their noise, `[R, I O]`."""
        return Place(self.posterior.root_fan_in * weights_of(step)[0], self.posterior.noise_in(noise))

    def rows(self, values: Tensor) -> Tensor:
        """Reshape outputs `[S, R, B, O]` to `[R, S B, O]`."""
        return rows(values)

    def by_output(self, values: Tensor) -> Tensor:
        """Reshape `[R, O]` so that it broadcasts with outputs."""
        return values[..., None, :]

    def unexplained(self, step: Evaluated, place: Place, gap: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs, `[R, S B, I]` without a column of ones, and residuals, `[R, S B, O]`, as rows."""
        output, inputs = step.output, step.input
        spread = rows(inputs.expand(*output.shape[:-1], inputs.shape[-1]))
        if place.white is not None:
            return spread, rows(gap)
        targets, bias = rows(output + gap), bool(self.layer.bias)
        return spread, joint.unexplained(spread, targets, place.centre, self.feature_scale, bias)

    def residuals(self, step: Evaluated, place: Place, gap: Tensor, weight: float) -> Residuals:
        """Return the moments of a minibatch with residuals at `place`, the mean or the drawn weights.

        The gap is targets minus outputs, `[S, R, B, O]`; the weight is N over the rows of all processes.
        """
        spread, left = self.unexplained(step, place, gap)
        wide = sum(self.posterior.centre.shape[-2:]) > joint.STRIP
        if place.white is not None and self.gram is None and wide:
            self.gram = torch.zeros_like(self.posterior.precision)
        memory = None if place.white is None else self.gram
        return joint.moments(spread, left, weight, self.feature_scale, bool(self.layer.bias), memory)

    def averaged(self, batch: Residuals, strength: Tensor, rate: Tensor, place: Place) -> JointState:
        """Return the state after a minibatch, given its moments, κ and γ, both `[R]`."""
        own, prior = self.posterior, strength[..., None] * self.prior
        return joint.averaged(own.state, batch, prior, own.prior_scale, rate, place)

    def strength(self, kind: str, lr: Tensor, mean_square: Tensor) -> Tensor:
        """Return the strength κ of the prior, `[R]`."""
        if kind == "relative":
            return torch.ones_like(mean_square[..., 0])
        if self.true_targets:
            return self.posterior.noise_tril.square().sum((-2, -1)) / self.posterior.outputs  # tr Σ / O
        return lr * inverse_root(mean_square.mean(-1))


class KernelRegression(LayerRegression):
    """A convolution as a regression from its windows: each point gives H' W' observations.

    Windows overlap, so counting each of them is a choice. The noise is that of one output pixel. Moments of
    windows need no patches, and have zeros at the boundary, as the layer itself pads.
    """

    layer: Conv2d

    def __init__(self, layer: Conv2d, replicas: tuple[int, ...], true_targets: bool):
        super().__init__(layer, replicas, true_targets)
        shape = layer.input_shape()
        assert shape is not None
        self.windows = math.prod(layer.windows.output_size((shape[1], shape[2])))

    def rows(self, values: Tensor) -> Tensor:
        return rows(values.flatten(-2).mT.flatten(-3, -2))

    def by_output(self, values: Tensor) -> Tensor:
        return values[..., None, :, None, None]

    def residuals(self, step: Evaluated, place: Place, gap: Tensor, weight: float) -> Residuals:
        output, images, scale = step.output, step.input, self.feature_scale
        images = images.expand(*output.shape[:-3], *images.shape[-3:])
        left = gap
        if place.white is None:
            left = left + output - self.layer.function(scale * place.centre)(images)
        merged = [values.movedim(0, -5).flatten(-5, -4) for values in (images, left)]  # [R, S B, ...]
        gram, cross = window_moments(merged[0], merged[1], self.layer.windows)
        flat = self.rows(left)
        return Residuals(
            gram.mul_(weight * scale**2).tril(), cross.mul_(weight * scale), weight * (flat.mT @ flat)
        )


class KeptRegression(LayerRegression):
    """A first dense layer that keeps the second moments of all points.

    The strength κ of the prior is averaged as moments are; V⁻¹ is factorised again once that average has
    changed by a tenth. The limit of the mean does not depend on V⁻¹: its own update uses the latest κ.
    """

    def __init__(self, layer: WeightLayer, replicas: tuple[int, ...], true_targets: bool, problem: Problem):
        super().__init__(layer, replicas, true_targets)
        inputs = problem.inputs
        if inputs is None:
            raise ValueError(
                "keep_moments=True is for inputs that never change, but augment changes them: leave one out"
            )
        self.sum = problem.sum_over_processes
        with exact_products():
            known = joint.gram_of(inputs, self.feature_scale, bool(layer.bias))
        self.known = known.expand(*replicas, *known.shape[-2:])
        # the average of κ, and its value when V⁻¹ was last factorised; zero before the first step
        self.strengths = self.prior.new_zeros(2, *replicas)
        self.seen: Callable[[Tensor], Tensor] | None = None

    def residuals(self, step: Evaluated, place: Place, gap: Tensor, weight: float) -> Residuals:
        """Return the cross moments; the rows are kept for the scatter, which is taken about the new mean."""
        spread, left = self.unexplained(step, place, gap)
        scale, bias = self.feature_scale, bool(self.layer.bias)

        def scatter(delta: Tensor) -> Tensor:
            rest = joint.unexplained(spread, left, delta, scale, bias)
            return self.sum([matmul(rest.mT, rest).mul_(weight)])[0]

        self.seen = scatter
        nothing = left.new_empty(0)
        return Residuals(nothing, joint.cross_moments(spread, left, weight, scale, bias), nothing)

    def averaged(self, batch: Residuals, strength: Tensor, rate: Tensor, place: Place) -> JointState:
        own, state = self.posterior, self._refreshed(strength, rate)
        if state.precision_tril is not own.precision_tril and place.white is not None:
            # The whitened residual was Tᵀ (W - mean) with the old factor T of V⁻¹; this is the new one.
            place = Place(place.centre, matmul(state.precision_tril.mT, place.centre - own.mean))
        assert self.seen is not None
        prior, scale = strength[..., None] * self.prior, own.prior_scale
        return joint.averaged_with(state, batch.cross, prior, scale, rate, place, self.seen)

    def forget(self) -> None:
        """Factorise again at the next step, because the posterior's state was replaced."""
        self.strengths = torch.zeros_like(self.strengths)

    def _refreshed(self, strength: Tensor, rate: Tensor) -> JointState:
        """Return the state, with V⁻¹ factorised again if κ has changed enough, or cannot be read."""
        state, (average, used) = self.posterior.state, self.strengths
        average = torch.lerp(average, strength, rate).where(used > 0, strength)
        stale = (average - used).abs() > STALE * used
        self.strengths = torch.stack([average, average.where(stale, used)])
        if not readable(stale) or bool(stale.any()):
            precision, tril = joint.factored(self.known, average[..., None] * self.prior)
            if stale.numel() > 1 or not readable(stale):
                where = stale[..., None, None]
                precision = precision.where(where, state.precision)
                tril = tril.where(where, state.precision_tril)
            state = state._replace(precision=precision, precision_tril=tril)
        return state


REGRESSIONS: dict[type[WeightLayer], type[LayerRegression]] = {
    Linear: LayerRegression,
    Conv2d: KernelRegression,
}


def regression_of(layer: WeightLayer, replicas: tuple[int, ...], true_targets: bool) -> LayerRegression:
    """Return the regression for a layer, which must be `Linear` or `Conv2d`."""
    kind = REGRESSIONS.get(type(layer))
    if kind is None:
        known = ", ".join(own.__name__ for own in REGRESSIONS)
        found = type(layer).__name__
        raise ValueError(f"{layer.describe()}: BALI has statistics for {known}, not for {found}")
    return kind(layer, replicas, true_targets)


def weights_of(step: Evaluated) -> Tensor:
    """Return the weights of a layer's function, `[S, R, I, O]`."""
    assert isinstance(step.function, LinearFunction | Conv2dFunction)
    return step.function.weights


def inverse_root(square: Tensor) -> Tensor:
    """Return 1 / √v, and 1 where v is zero: gradients are zero there, so the factor does not matter."""
    return square.where(square >= torch.finfo(square.dtype).tiny, 1.0).rsqrt()


def rows(values: Tensor) -> Tensor:
    """Reshape `[S, R, B, ...]` to `[R, S B, ...]`."""
    return values[0] if len(values) == 1 else values.movedim(0, -3).flatten(-3, -2)


def split_noise(noise: Tensor, posteriors: Sequence[ConjugateWeights]) -> tuple[Tensor, ...]:
    """Split the normals of a draw, `[..., P]`, by layers in order of evaluation."""
    return noise.split([posterior.noise_size for posterior in posteriors], -1)


def rate_at(update_rate: float, step: int | Tensor) -> float | Tensor:
    """Return γ = β / (1 - (1-β)^t), as a number or in float64; it is 1 at the first step."""
    kept = math.log1p(-update_rate) if update_rate < 1.0 else -math.inf  # log (1-β)
    if isinstance(step, int):
        return -update_rate / math.expm1(step * kept)
    return -update_rate / torch.expm1(step.double() * kept)


def steps_of(count: Tensor, active: Tensor) -> int | Tensor:
    """Return the number of steps so far: one number if all active replicas agree, else a tensor."""
    known = count[active] if bool(active.any()) else count.reshape(-1)
    return int(known[0]) if bool((known == known[0]).all()) else count.clone()


def layers_of(net: Network) -> list[WeightLayer]:
    """Return the layers with weights, in order of evaluation; all must have the posterior `Conjugate`."""
    layers = [module for module in net.modules() if isinstance(module, WeightLayer)]
    for layer in layers:
        if not isinstance(layer.weights, ConjugateWeights):
            raise ValueError(
                f"BALI trains layers with gilib.posteriors.Conjugate, but {layer.describe()} has "
                f"{layer.posterior!r}"
            )
    if not layers:
        raise ValueError(
            "BALI is for layers with gilib.posteriors.Conjugate, and the network has none: build it with "
            "posterior=gilib.posteriors.Conjugate()"
        )
    return layers


def check_parameters(problem: Problem, infers_noise: bool) -> None:
    """Raise if there are parameters that the rule would not train."""
    prefix = "likelihood." if infers_noise else None
    left = [name for name in problem.parameters if prefix is None or not name.startswith(prefix)]
    if left:
        raise ValueError(
            "BALI trains layers with gilib.posteriors.Conjugate, which have no parameters, and cannot train "
            f"{', '.join(left)}: give every layer Conjugate() and a fixed prior, such as NealPrior, and set "
            "requires_grad=False on parameters that are to stay fixed"
        )


def check_passes(problem: Problem, regressions: Sequence[LayerRegression]) -> None:
    """Raise unless an evaluation calls every layer once, in order, with its own part of the noise."""
    layers, objective = [own.layer for own in regressions], problem.objective
    noise = objective.noise(1, torch.Generator(problem.device).manual_seed(0))
    with torch.no_grad(), exact_products():
        function = objective.drawn(noise).function
        recording = record(function, noise.draw.new_zeros(1, *problem.net.input_shape))
    shapes, random = [layer.input_axes() or 1 for layer in layers], recording.drawn
    widths = [step.output.shape[-axes] for step, axes in zip(random, shapes, strict=False)]
    if len(random) != len(layers) or widths != [layer.outputs for layer in layers]:
        raise ValueError(
            f"BALI knows the outputs of {[layer.describe() for layer in layers]}, but met functions with "
            f"outputs {[list(step.output.shape[2:]) for step in random]}: all layers except plain modules "
            "must be dense or convolutional, and called once"
        )
    if regressions[-1].true_targets and recording.output is not random[-1].output:
        raise ValueError(
            "the last layer with weights uses the targets, so it must give the outputs of the network: end "
            "with it, outside of residual blocks and sums, without an activation after it"
        )

    if objective.estimator == "draw" and not noise_in_order(noise.draw, regressions, random):
        raise ValueError(
            "BALI takes the noise of layers in the order of evaluation, but a layer of your own splits its "
            "noise in another order, or uses some of it itself: split it in the order of its layers"
        )


@torch.no_grad()
def noise_in_order(noise: Tensor, layers: Sequence[LayerRegression], steps: Sequence[Evaluated]) -> bool:
    """Return whether a draw has taken its noise layer by layer, in order of evaluation."""
    posteriors = [layer.posterior for layer in layers]
    if noise.shape[-1] != sum(own.noise_size for own in posteriors):
        return False
    parts = zip(posteriors, split_noise(noise, posteriors), steps, strict=True)
    with exact_products():
        return all(torch.equal(weights_of(step), own.weights(part)) for own, part, step in parts)


def check_first(net: Network, layers: Sequence[WeightLayer]) -> None:
    """Raise unless the first layer with weights sees the inputs themselves."""
    first = next(iter(net.layers))
    if first is not layers[0] or not isinstance(first, Linear):
        raise ValueError(
            "keep_moments=True needs a network that begins with a dense layer, Linear with nothing before "
            f"it; here the first layer is {first.describe()}, and the first with weights is "
            f"{layers[0].describe()}"
        )
