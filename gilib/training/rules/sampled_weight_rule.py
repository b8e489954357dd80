"""The common part of rules that draw weights, take gradients there and move a posterior in closed form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from gilib.arguments import Positive
from gilib.draws import Draw, Evaluated, record
from gilib.layers import Linear
from gilib.layers.conv import Conv2dFunction
from gilib.layers.linear import LinearFunction
from gilib.layers.weights import WeightLayer
from gilib.linalg import ScaledIdentity
from gilib.linalg.products import matmul
from gilib.objectives import estimated_bound
from gilib.posteriors import Posterior
from gilib.training.gradients.objective import Batch
from gilib.training.rules.adam import Adam, RunningWithAdam
from gilib.training.rules.base import Problem, Rule
from gilib.training.schedules import Schedule

Statistic = Callable[[Tensor, Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class SampledWeightRule(Rule, ABC):
    """A rule for all layers with one kind of posterior.

    Args:
        lr: α, the learning rate.
        base_optimiser: the rule for all other parameters, such as a learned noise.
        schedule: a factor for α at every step; None: 1.
    """

    lr: Positive = 1e-2
    base_optimiser: Adam = Adam()
    schedule: Schedule | None = None
    posterior: ClassVar[type[Posterior]]
    divides_by_kl_weight: ClassVar[bool] = True

    def statistic(self) -> Statistic | None:
        """Return what the rule needs of single examples, a function; None: nothing, for any layer.

        It maps the inputs of a `Linear` layer, `[..., B, I]` with any bias column, and the gradients of the
        MEAN loss of B examples with respect to its outputs, `[S, R, B, O]`, to means over the examples.
        """
        return None


class RunningSampledWeightRule(RunningWithAdam, ABC):
    """A `SampledWeightRule` at work, with Adam on all other parameters."""

    rule: SampledWeightRule
    recordable = True

    def __init__(self, rule: SampledWeightRule, problem: Problem):
        super().__init__(rule, problem)
        name, kind, objective = type(rule).__name__, rule.posterior, problem.objective
        layers = [module for module in problem.net.modules() if isinstance(module, WeightLayer)]
        self.trained = [
            TrainedLayer(position, layer, layer.weights)
            for position, layer in enumerate(layers)
            if isinstance(layer.posterior, kind)
            and all(parameter.requires_grad for parameter in layer.modules_built()[1].parameters())
        ]
        if not self.trained:
            raise ValueError(
                f"{name} trains layers with {kind.__name__} weights, but the network has none that are "
                f"learned: build it with posterior=gilib.posteriors.{kind.__name__}(), or train it by "
                "gilib.Adam"
            )
        if objective.estimator != "draw" or objective.arithmetic != "full":
            raise ValueError(
                f"{name} reads gradients at weights that are drawn, in full arithmetic: it needs "
                f"estimator='draw' and arithmetic='full', got {objective.estimator!r} and "
                f"{objective.arithmetic!r}"
            )
        for own in self.trained:
            _check(own.layer, name, rule.statistic() is not None)
        self._check_order(name, len(layers))
        ids = {id(p) for own in self.trained for p in own.weights.parameters()}
        others = {key: p for key, p in problem.parameters.items() if id(p) not in ids}
        self.leave_to_adam(rule.base_optimiser, others)

    def step(self, batch: Batch) -> Tensor:
        bound, of_weights, gradients = self.gradients(batch)
        self.active &= bound.isfinite()
        weight = batch.kl_weight / self.problem.objective.num_data
        with torch.no_grad():
            for k, (own, seen) in enumerate(zip(self.trained, of_weights, strict=True)):
                moved = self.move(k, own, seen, weight)
                self.active &= moved.isfinite().all(-1).all(-1)
        self.update_others(gradients)
        return bound

    @abstractmethod
    def move(self, k: int, own: TrainedLayer, gradients: WeightGradients, weight: float | Tensor) -> Tensor:
        """Move the posterior of the k-th trained layer; the result, `[R, I, O]`, is finite if all went well.

        The weight is κ / N.
        """

    @abstractmethod
    def moments(self) -> dict[str, list[Tensor]]:
        """Return all statistics that the rule keeps, a list over layers by name."""

    def gradients(self, batch: Batch) -> tuple[Tensor, list[WeightGradients], list[Tensor]]:
        """Return the bound, `[R]`, and gradients by layers and by `others`, summed over the processes."""
        with self.problem.propagate_failures():
            bound, of_weights, gradients = self._gradients_of_share(batch)
        found = [bound, *gradients]
        for own in of_weights:
            found += [own.gradient, *own.statistics]
        totals = iter(self.problem.sum_over_processes([batch.fraction * value.detach() for value in found]))
        bound, *gradients = islice(totals, 1 + len(self.others))
        of_weights = [
            WeightGradients(own.weights, next(totals), tuple(islice(totals, len(own.statistics))))
            for own in of_weights
        ]
        return bound, of_weights, gradients

    def _gradients_of_share(self, batch: Batch) -> tuple[Tensor, list[WeightGradients], list[Tensor]]:
        problem, num_data = self.problem, self.problem.objective.num_data
        statistic, others = self.rule.statistic(), self.others
        drawn = problem.net.draw(noise=batch.noise.draw)
        recording = record(drawn.function, batch.x)
        steps = _weight_steps(recording.steps)
        steps = [steps[own.position] for own in self.trained]
        # The loss of the data alone, since rules know log P - log Q in closed form: a draw of density zero.
        known = Draw(lambda _: recording.output, torch.zeros_like(drawn.density))
        data = estimated_bound(known, problem.likelihood, batch.x, batch.y, num_data, 1.0) / num_data
        bound = (data + batch.kl_weight / num_data * drawn.density).mean(0)
        weights = [step.function.weights for step in steps]  # type: ignore[attr-defined]
        outputs = [step.output for step in steps] if statistic is not None else []
        found = torch.autograd.grad(-data.sum(), [*weights, *outputs], retain_graph=bool(others))
        gradients = torch.autograd.grad(-bound.sum(), others, materialize_grads=True) if others else ()
        of_weights = [
            WeightGradients(w.detach(), g) for w, g in zip(weights, found[: len(steps)], strict=True)
        ]
        for k, slope in enumerate(found[len(steps) :]):
            assert statistic is not None
            features = self.trained[k].layer.features(steps[k].input.detach())
            of_weights[k] = of_weights[k]._replace(statistics=statistic(features, slope))
        return bound, of_weights, list(gradients)

    def state_dict(self) -> dict[str, Any]:
        return {**self.moments(), **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, values in self.moments().items():
            for value, saved in zip(values, state[name], strict=True):
                value.copy_(saved)
        super().load_state_dict(state)

    def _check_order(self, rule: str, layers: int) -> None:
        """Raise unless layers are evaluated in the network's order: with zero noise, at their means."""
        net = self.problem.net
        like = self.trained[0].weights.scaled_mean
        with torch.no_grad():
            drawn = net.draw(noise=like.new_zeros(1, *net.replicas, net.noise_size))
            steps = _weight_steps(record(drawn.function, like.new_zeros(1, *net.input_shape)).steps)
        if len(steps) == layers and all(
            _equal(steps[own.position].function.weights[0], own.weights.mean)  # type: ignore[attr-defined]
            for own in self.trained
        ):
            return
        raise ValueError(
            f"{rule} must see the {layers} layers with weights of this network in their order, but an "
            f"evaluation called {len(steps)}, or all in another order: compose gilib's layers by Sequential, "
            "Residual and Sum, or train by gilib.Adam"
        )


class WeightGradients(NamedTuple):
    """Gradients of the mean loss -log P(y_n | f(x_n)) of a minibatch, at the drawn weights of one layer."""

    weights: Tensor  # W, `[S, R, I, O]`
    gradient: Tensor  # the gradient with respect to W, `[S, R, I, O]`
    statistics: tuple[Tensor, ...] = ()  # the rule's, of the layer's inputs and its outputs' gradients


class TrainedLayer(NamedTuple):
    """A layer whose weights a rule trains."""

    position: int  # among the network's layers with weights
    layer: WeightLayer
    weights: Any  # its posterior

    def prior_precision(self) -> Tensor:
        """Return the precision of the weights under the prior, `[R, 1, 1]`."""
        replicas, like = self.layer.replicas, self.weights.scaled_mean
        operator, _ = self.layer.modules_built()[0].draw(like.new_zeros((1, *replicas, 0)))
        assert isinstance(operator, ScaledIdentity)
        return operator.scale.detach().expand(1, *replicas)[0][..., None, None]


def _equal(drawn: Tensor, mean: Tensor) -> bool:
    """Return whether two tensors are equal, where NaN equals NaN: training reports it as divergence later."""
    return drawn.shape == mean.shape and torch.allclose(drawn, mean, 0.0, 0.0, equal_nan=True)


def squared_gradients(features: Tensor, output_gradients: Tensor) -> tuple[Tensor]:
    """Return the mean square of single examples' gradients in a dense layer: (x_n g_nᵀ)² = x_n² (g_n²)ᵀ.

    >>> squared_gradients(torch.tensor([[2.0], [3.0]]), torch.tensor([[[0.5], [1.0]]]))  # (4 + 36) / 2
    (tensor([[[20.]]]),)
    """
    return (output_gradients.shape[-2] * matmul(features.square().mT, output_gradients.square()),)


def _weight_steps(steps: Sequence[Evaluated]) -> list[Evaluated]:
    return [step for step in steps if isinstance(step.function, LinearFunction | Conv2dFunction)]


def _check(layer: WeightLayer, rule: str, examples: bool) -> None:
    prior, weights = layer.modules_built()
    like = next(weights.parameters())
    fixed = prior.noise_size == 0
    if not fixed or not isinstance(prior.draw(like.new_zeros((1, *layer.replicas, 0)))[0], ScaledIdentity):
        raise ValueError(
            f"{rule} needs a prior of known variance, the same for all weights of a layer, but "
            f"{layer.describe()} has {layer.prior!r}: use NealPrior or StandardPrior, or gilib.Adam"
        )
    if examples and not isinstance(layer, Linear):
        raise ValueError(
            f"{rule} needs gradients of single examples, which only Linear layers give; this network has "
            f"{layer.describe()}: use gilib.training.IVON or Vadam"
        )
