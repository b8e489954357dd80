"""Layers of a network as regressions: what Bayesian layerwise inference asks of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gilib.convolution import window_moments
from gilib.draws import Evaluated, record
from gilib.layers.conv import Conv2d, Conv2dFunction
from gilib.layers.linear import Linear, LinearFunction
from gilib.layers.weights import WeightLayer
from gilib.network import Network
from gilib.posteriors import ConjugateWeights
from gilib.regression.joint import JointState, Place, averaged, over_axes
from gilib.regression.moments import STRIP, Residuals, moments, unexplained
from gilib.training.rules.base import Problem


class LayerRegression:
    """One dense layer as a regression.

    Args:
        layer: with `Conjugate`.
        replicas: of the network.
        true_targets: whether it takes those of the data.

    Attributes:
        prior: the diagonal of the prior precision of W̃, `[R, I]`.
        windows: observations that a point gives.
        feature_scale: 1 / √I, of the features.
        gram: memory for a wide layer's moments, `[R, I, I]`, once they are taken at drawn weights.
    """

    windows = 1

    def __init__(self, layer: WeightLayer, replicas: tuple[int, ...], true_targets: bool):
        """Read the prior, which must be fixed."""
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
        self.prior = diagonal.expand(1, *replicas, layer.fan_in)[0]
        self.gram: Tensor | None = None
        self.feature_scale = 1.0 / posterior.root_fan_in

    def scale(self, mean_square: Tensor, rate: float | Tensor) -> Tensor:
        """v after a minibatch, `[R, O]`; as before, where no gradient arrived: else κ would explode."""
        known = self.posterior.mean_square
        return torch.lerp(
            known, mean_square.where(mean_square.any(-1, keepdim=True), known), over_axes(rate, 1)
        )

    def lengths(self, mean_square: Tensor, lr: float | Tensor) -> Tensor:
        """α / √v, `[R, O]`, finite where v is zero, as the gradient is there."""
        return lr * mean_square.clamp_min(torch.finfo(mean_square.dtype).tiny).rsqrt()

    def squares(self, gradient: Tensor) -> Tensor:
        """Sums over all rows of squared gradients `[S, R, B, O]`, `[R, O]`."""
        return self.rows(gradient).square().sum(-2)

    def start(self, step: Evaluated) -> Place:
        """What stands for the mean before the first minibatch: the drawn weights.

        They explain most of the pseudo-targets X̃ W̃ - α g / √v: residuals at a mean of zero would be large
        and, at layers with more outputs than inputs, of small rank.
        """
        return Place(self.posterior.root_fan_in * weights_of(step).mean(0))

    def rows(self, values: Tensor) -> Tensor:
        """Outputs `[S, R, B, O]` as `[R, S B, O]`."""
        return rows(values)

    def by_output(self, values: Tensor) -> Tensor:
        """`[R, O]`, to be multiplied with outputs."""
        return values[..., None, :]

    def unexplained(self, step: Evaluated, place: Place, gap: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and residuals as rows, `[R, S B, I]` (without a column of ones) and `[R, S B, O]`."""
        output, inputs = step.output, step.input
        spread = rows(inputs.expand(*output.shape[:-1], inputs.shape[-1]))
        if place.white is not None:
            return spread, rows(gap)
        targets, bias = rows(output + gap), bool(self.layer.bias)
        return spread, unexplained(spread, targets, place.centre, self.feature_scale, bias)

    def residuals(self, step: Evaluated, place: Place, gap: Tensor, weight: float) -> Residuals:
        """The moments of a minibatch.

        Args:
            step: input and output of the layer.
            place: where residuals are taken: with noise, the weights of the step.
            gap: from outputs to targets, `[S, R, B, O]`: -α g / √v, or to those of the data.
            weight: N over the rows of all processes.
        """
        spread, left = self.unexplained(step, place, gap)
        if place.white is not None and self.gram is None and sum(self.posterior.centre.shape[-2:]) > STRIP:
            self.gram = torch.zeros_like(self.posterior.precision)
        memory = None if place.white is None else self.gram
        return moments(spread, left, weight, self.feature_scale, bool(self.layer.bias), memory)

    def averaged(self, batch: Residuals, strength: Tensor, rate: float | Tensor, place: Place) -> JointState:
        """The state after a minibatch.

        Args:
            batch: its moments.
            strength: κ, `[R]`.
            rate: γ, a number or `[R]`.
            place: where the residuals were taken.
        """
        own, prior = self.posterior, strength[..., None] * self.prior
        return averaged(own.state, batch, prior, own.prior_scale, rate, place)

    def strength(self, kind: str, lr: float | Tensor, mean_square: Tensor) -> Tensor:
        """κ, `[R]`."""
        if kind == "relative":
            return torch.ones_like(mean_square[..., 0])
        if self.true_targets:
            return self.posterior.mean_noise
        return lr * inverse_root(mean_square.mean(-1))


class KernelRegression(LayerRegression):
    """A convolution as a regression from its windows: each is an observation, H' W' of them a point.

    They overlap and are not independent, so that counting all of them is a choice, and ours (the paper has
    dense layers only): the noise is that of one output pixel, and V that of N H' W' windows. Moments of
    windows are computed without patches, with zeros at the boundary, as the layer itself pads.
    """

    layer: Conv2d

    def __init__(self, layer: Conv2d, replicas: tuple[int, ...], true_targets: bool):
        """Count the windows."""
        super().__init__(layer, replicas, true_targets)
        shape = layer.input_shape()
        assert shape is not None
        self.windows = math.prod(layer.windows.output_size((shape[1], shape[2])))

    def rows(self, values: Tensor) -> Tensor:
        """Output images `[S, R, B, O, H', W']` as `[R, S B H' W', O]`."""
        return rows(values.flatten(-2).mT.flatten(-3, -2))

    def by_output(self, values: Tensor) -> Tensor:
        """`[R, O]`, to be multiplied with output images."""
        return values[..., None, :, None, None]

    def residuals(self, step: Evaluated, place: Place, gap: Tensor, weight: float) -> Residuals:
        """The moments of a minibatch, onto targets in every pixel."""
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


REGRESSIONS: dict[type[WeightLayer], type[LayerRegression]] = {
    Linear: LayerRegression,
    Conv2d: KernelRegression,
}


def regression_of(layer: WeightLayer, replicas: tuple[int, ...], true_targets: bool) -> LayerRegression:
    """A layer as a regression.

    Raises:
        ValueError: for other layers.
    """
    kind = REGRESSIONS.get(type(layer))
    if kind is None:
        known = ", ".join(own.__name__ for own in REGRESSIONS)
        found = type(layer).__name__
        raise ValueError(f"{layer.describe()}: BALI has statistics for {known}, not for {found}")
    return kind(layer, replicas, true_targets)


def weights_of(step: Evaluated) -> Tensor:
    """The weights of a layer's function, `[S, R, I, O]`."""
    assert isinstance(step.function, LinearFunction | Conv2dFunction)
    return step.function.weights


def inverse_root(square: Tensor) -> Tensor:
    """1 / √v; 1 where nothing ever depended on an output: its gradient is zero, whatever it is divided by."""
    return square.where(square >= torch.finfo(square.dtype).tiny, 1.0).rsqrt()


def rows(values: Tensor) -> Tensor:
    """`[S, R, B, ...]` as `[R, S B, ...]`."""
    return values[0] if len(values) == 1 else values.movedim(0, -3).flatten(-3, -2)


def layers_of(net: Network) -> list[WeightLayer]:
    """The layers with weights, in the order of evaluation.

    Raises:
        ValueError: if one has another posterior, or there are none.
    """
    layers = [module for module in net.modules() if isinstance(module, WeightLayer)]
    for layer in layers:
        if not isinstance(layer.weights, ConjugateWeights):
            raise ValueError(
                f"BALI trains layers with gilib.posteriors.Conjugate, {layer.describe()} has "
                f"{layer.posterior!r}"
            )
    if not layers:
        raise ValueError(
            "BALI is for layers with gilib.posteriors.Conjugate, and the network has none: build it with "
            "posterior=gilib.posteriors.Conjugate()"
        )
    return layers


def check_parameters(problem: Problem, infers_noise: bool) -> None:
    """Raise if there is something that would not be trained."""
    prefix = "likelihood." if infers_noise else None
    left = [name for name in problem.parameters if prefix is None or not name.startswith(prefix)]
    if left:
        raise ValueError(
            "BALI trains layers with gilib.posteriors.Conjugate, which have no parameters, and would leave "
            f"{', '.join(left)} as they are: give every layer Conjugate() and a fixed prior, such as "
            "NealPrior, and what is not to be trained requires_grad=False"
        )


def check_passes(problem: Problem, layers: Sequence[WeightLayer], regression: bool) -> None:
    """Raise unless one evaluation passes every layer once, in order, and a regression ends with the last."""
    net = problem.net
    noise = problem.objective.noise(1, torch.Generator(problem.device).manual_seed(0))
    with torch.no_grad():
        function = problem.objective.drawn(noise).function
        recording = record(function, noise.draw.new_zeros(1, *net.input_shape))
    shapes, random = [layer.input_axes() or 1 for layer in layers], recording.drawn
    widths = [step.output.shape[-axes] for step, axes in zip(random, shapes, strict=False)]
    if len(random) != len(layers) or widths != [layer.outputs for layer in layers]:
        raise ValueError(
            f"BALI knows the outputs of {[layer.describe() for layer in layers]} and met functions with "
            f"outputs {[list(step.output.shape[2:]) for step in random]}: all layers but plain modules must "
            "be dense or convolutional ones"
        )
    if regression and recording.output is not random[-1].output:
        raise ValueError(
            "the targets are those of the last layer with weights, which must give the outputs of the "
            "network: end with it, outside of residual blocks and sums, without an activation after it"
        )
