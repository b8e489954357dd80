"""What minibatches say about weights that were drawn: gradients of every draw, squares of every example's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gilib.draws import Draw, Evaluated, record
from gilib.layers import Linear
from gilib.layers.conv import Conv2dFunction
from gilib.layers.linear import LinearFunction
from gilib.layers.weights import WeightLayer
from gilib.linalg import ScaledIdentity
from gilib.network import Network
from gilib.objectives import elbo
from gilib.posteriors import FactorisedWeights
from gilib.training.objective import Batch
from gilib.training.rule import Problem


class Slopes(NamedTuple):
    """Of the mean loss -log P(y_n | f(x_n)) of a minibatch, at the weights that were drawn in one layer.

    Attributes:
        weights: W, `[S, R, I, O]`.
        gradient: with respect to W, `[S, R, I, O]`.
        squares: the mean over the examples of each one's squared gradient, `[S, R, I, O]`; None: not asked.
    """

    weights: Tensor
    gradient: Tensor
    squares: Tensor | None


class GaussianWeights(NamedTuple):
    """A layer whose weights a rule trains.

    Attributes:
        place: which of the network's layers with weights it is, counted from 0.
        layer: it.
        weights: its posterior.
    """

    place: int
    layer: WeightLayer
    weights: FactorisedWeights

    def prior_precision(self) -> Tensor:
        """1 / variance of the weights under the prior, `[R, 1, 1]`."""
        replicas, like = self.layer.replicas, self.weights.log_variance
        operator, _ = self.layer.modules_built()[0].draw(like.new_zeros((1, *replicas, 0)))
        assert isinstance(operator, ScaledIdentity)
        return operator.scale.detach().expand(1, *replicas)[0][..., None, None]


class DrawnWeights:
    """The factorised Gaussian weights of a network, and what a minibatch says about them.

    Args:
        problem: of the training.
        rule: its name, for messages.
        per_example: whether squares are asked.

    Attributes:
        gaussians: the layers that are trained so.
        rest: all other learned parameters, by name.
    """

    def __init__(self, problem: Problem, rule: str, per_example: bool):
        """Find the layers.

        Raises:
            ValueError: if the rule does not serve the problem.
        """
        self.problem, self.per_example = problem, per_example
        objective = problem.objective
        if objective.estimator != "draw" or objective.arithmetic != "full":
            raise ValueError(
                f"{rule} reads gradients at weights that are drawn, in full arithmetic: it needs "
                f"estimator='draw' and arithmetic='full', got {objective.estimator!r} and "
                f"{objective.arithmetic!r}"
            )
        layers = _weight_layers(problem.net)
        self.gaussians = [
            GaussianWeights(place, layer, layer.weights)
            for place, layer in enumerate(layers)
            if isinstance(layer.weights, FactorisedWeights) and layer.weights.scaled_mean.requires_grad
        ]
        if not self.gaussians:
            raise ValueError(
                f"{rule} trains layers with Factorised weights, and the network has none that are learned: "
                "build it with posterior=gilib.Factorised(), or train it by gilib.Adam"
            )
        for gaussian in self.gaussians:
            _check(gaussian.layer, rule, per_example)
        self._check_order(rule, len(layers))
        own = {id(p) for gaussian in self.gaussians for p in gaussian.weights.parameters()}
        self.rest = {name: p for name, p in problem.parameters.items() if id(p) not in own}

    def __call__(
        self, batch: Batch, rest: Sequence[nn.Parameter]
    ) -> tuple[Tensor, list[Slopes], list[Tensor]]:
        """Of the whole minibatch, summed over the processes.

        Returns:
            The bound per data point `[R]`; the slopes of every layer; gradients of minus the bound, summed
            over replicas, with respect to `rest`.
        """
        with self.problem.together():
            bound, slopes, gradients = self._of_share(batch, rest)
        pieces = [value for own in slopes for value in own[1:] if value is not None]
        scaled = [batch.fraction * value for value in (bound, *gradients, *pieces)]
        bound, *summed = self.problem.total([value.detach() for value in scaled])
        gradients, pieces = summed[: len(rest)], summed[len(rest) :]
        stride = 1 + self.per_example
        for k, own in enumerate(slopes):
            gradient, *squares = pieces[stride * k : stride * (k + 1)]
            slopes[k] = Slopes(own.weights, gradient, squares[0] if squares else None)
        return bound, slopes, gradients

    def _of_share(
        self, batch: Batch, rest: Sequence[nn.Parameter]
    ) -> tuple[Tensor, list[Slopes], list[Tensor]]:
        problem, num_data = self.problem, self.problem.objective.num_data
        drawn = problem.net.draw(noise=batch.noise.draw)
        recording = record(drawn.function, batch.x)
        steps = _weight_steps(recording.steps)
        steps = [steps[gaussian.place] for gaussian in self.gaussians]
        known = Draw(lambda _: recording.output, torch.zeros_like(drawn.density))
        settings = {"num_data": num_data, "per_point": True, "reduction": "none"}
        data = elbo(known, problem.likelihood, batch.x, batch.y, **settings)  # type: ignore[arg-type]
        bound = (data + batch.kl_weight / num_data * drawn.density).mean(0)
        weights = [step.function.weights for step in steps]  # type: ignore[attr-defined]
        outputs = [step.output for step in steps] if self.per_example else []
        found = torch.autograd.grad(-data.sum(), [*weights, *outputs], retain_graph=bool(rest))
        gradients = torch.autograd.grad(-bound.sum(), rest, materialize_grads=True) if rest else ()
        slopes = [Slopes(w.detach(), g, None) for w, g in zip(weights, found[: len(steps)], strict=True)]
        for k, own in enumerate(found[len(steps) :]):
            features = self.gaussians[k].layer.features(steps[k].input.detach())
            slopes[k] = slopes[k]._replace(squares=squared_gradients(features, own))
        return bound, slopes, list(gradients)

    def _check_order(self, rule: str, layers: int) -> None:
        """Raise unless layers are evaluated in the order in which the network holds them.

        Without noise each draws its mean.
        """
        net = self.problem.net
        like = self.gaussians[0].weights.log_variance
        with torch.no_grad():
            drawn = net.draw(noise=like.new_zeros(1, *net.replicas, net.noise_size))
            steps = _weight_steps(record(drawn.function, like.new_zeros(1, *net.input_shape)).steps)
        if len(steps) == layers and all(
            torch.equal(steps[gaussian.place].function.weights[0], gaussian.weights.mean)  # type: ignore[attr-defined]
            for gaussian in self.gaussians
        ):
            return
        raise ValueError(
            f"{rule} finds the {layers} layers with weights of this network by record, which showed "
            f"{len(steps)}, or the same in another order: compose gilib's layers by Sequential, Residual and "
            "Sum, or train by gilib.Adam"
        )


def squared_gradients(features: Tensor, slopes: Tensor) -> Tensor:
    """The mean of the squares of single examples' gradients in a dense layer: (x_n g_nᵀ)² = x_n² (g_n²)ᵀ.

    Args:
        features: x, `[..., B, I]`, a bias column included.
        slopes: gradients of the MEAN loss of the B examples with respect to the outputs, g / B,
            `[S, R, B, O]`.

    >>> squared_gradients(torch.tensor([[2.0], [3.0]]), torch.tensor([[[0.5], [1.0]]]))  # (4 + 36) / 2
    tensor([[[20.]]])
    """
    return slopes.shape[-2] * (features.square().mT @ slopes.square())


def _weight_layers(net: Network) -> list[WeightLayer]:
    return [module for module in net.modules() if isinstance(module, WeightLayer)]


def _weight_steps(steps: Sequence[Evaluated]) -> list[Evaluated]:
    return [step for step in steps if isinstance(step.function, LinearFunction | Conv2dFunction)]


def _check(layer: WeightLayer, rule: str, per_example: bool) -> None:
    """Raise unless the layer's prior is a fixed Gaussian, and squares can be had where they are asked."""
    prior, weights = layer.modules_built()
    like = next(weights.parameters())
    fixed = prior.noise_size == 0
    if not fixed or not isinstance(prior.draw(like.new_zeros((1, *layer.replicas, 0)))[0], ScaledIdentity):
        raise ValueError(
            f"{rule} needs a prior of known variance, the same for all weights of a layer, and "
            f"{layer.describe()} has {layer.prior!r}: use NealPrior or StandardPrior, or train by gilib.Adam"
        )
    if per_example and not isinstance(layer, Linear):
        raise ValueError(
            f"{rule} squares the gradients of single examples, which is for Linear layers; this network has "
            f"{layer.describe()}: use gilib.training.IVON or Vadam"
        )
