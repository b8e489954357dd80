"""Sequences and residual blocks: composed draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from gilib.config import ConfigDict
from gilib.draws import Composition, Draw, Drawn, Estimate
from gilib.draws.drawn import total_log_pq
from gilib.draws.functions import AfterInducing, ResidualFunction
from gilib.layers.base import Layer
from gilib.layers.modes import ESTIMATE, JOINT, SamplingMode
from gilib.layers.pointwise import Pointwise
from gilib.posteriors import BuildContext
from gilib.randomness import Noise, NoiseSize, total_size
from gilib.sites import Shape

AnyDrawn = TypeVar("AnyDrawn", bound=Drawn)


def as_layer(module: Layer | nn.Module) -> Layer:
    """A gilib layer as it is; a plain module wrapped as `Pointwise`."""
    return module if isinstance(module, Layer) else Pointwise(module)


class Sequential(Layer):
    """Layers one after the other; inducing points travel through what each layer drew.

    In an estimate, a layer below one that needs inducing points must tell what became of them. Layers that
    draw a function there, or inducing outputs, do: they estimate (see `Layer.carries`). Those that integrate
    the function out, such as factorised weights, do not: there they draw, and estimate everywhere else.

    Args:
        layers: gilib layers and plain modules.

    >>> import torch
    >>> from gilib.layers.linear import Linear
    >>> layer = Sequential([Linear(1, 5), nn.ReLU(), Linear(5, 1)])
    >>> layer.build((1,), BuildContext(num_inducing=3))
    (1,)
    >>> layer.draw(torch.randn(3, 1), num_samples=2)(torch.zeros(4, 1)).shape
    torch.Size([2, 4, 1])
    """

    def __init__(self, layers: Sequence[Layer | nn.Module]):
        """Collect the layers."""
        super().__init__()
        if not layers:
            raise ValueError("a network needs at least one layer")
        self.layers = nn.ModuleList(as_layer(layer) for layer in layers)
        self.has_weights = any(layer.has_weights for layer in self)
        self._num_inducing = 0
        self._last_inducing = 0  # the place of the last layer that needs inducing points; 0 if none does

    def __iter__(self) -> Iterator[Layer]:
        """The layers in order."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    def __getitem__(self, place: int) -> Layer:
        """The layer at this place, from 0; -1 is the last."""
        layer = self.layers[place]
        assert isinstance(layer, Layer)
        return layer

    def __len__(self) -> int:
        """How many."""
        return len(self.layers)

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Build every layer for the shape that the one before it gives."""
        last = max((k for k, layer in enumerate(self) if layer.has_weights), default=-1)
        for k, layer in enumerate(self):
            try:
                shape = layer.join(shape, context.as_last(context.last and k == last))
            except ValueError as error:
                raise ValueError(f"layer {k}: {error}") from error
        self.replicas, self._num_inducing = context.replicas, context.num_inducing or 0
        self.noise_size = sum(layer.noise_size for layer in self)
        self.needs_inducing = any(layer.needs_inducing for layer in self)
        self._last_inducing = max([0, *(k for k, layer in enumerate(self) if layer.needs_inducing)])
        self.carries = all(layer.carries for layer in list(self)[self._last_inducing :])
        self.prefers_estimate = any(layer.prefers_estimate for layer in self)
        self.starts_at_targets = any(layer.starts_at_targets for layer in self)
        return shape

    def _estimates(self) -> list[bool]:
        """Whether each layer estimates where the sequence does."""
        return [layer.carries or k >= self._last_inducing for k, layer in enumerate(self)]

    @property
    def estimate_size(self) -> NoiseSize:
        """That of the layers that estimate, and of the draws of the others."""
        return total_size(self._sizes(ESTIMATE))

    @property
    def joint_size(self) -> NoiseSize:
        """As `estimate_size`, of joint draws."""
        return total_size(self._sizes(JOINT))

    def _sizes(self, mode: SamplingMode) -> list[NoiseSize]:
        pairs = zip(self, self._estimates(), strict=True)
        return [mode.size(layer) if own else self._carried_size(mode, layer) for layer, own in pairs]

    def _carried_size(self, mode: SamplingMode, layer: Layer) -> NoiseSize:
        if not (mode is JOINT and layer.prefers_estimate):
            return NoiseSize(layer.noise_size)
        own = layer.joint_size
        return NoiseSize(own.draw + self._num_inducing * own.points, own.points)

    def draw_from_noise(self, inducing: Tensor | None, noise: Tensor) -> Draw:
        """Draw layer by layer."""
        pieces = noise.split_with_sizes([layer.noise_size for layer in self], -1)
        draws = [
            partial(layer.draw_from_noise, noise=piece) for layer, piece in zip(self, pieces, strict=True)
        ]
        parts, inducing = self._walk(draws, inducing)
        function = Composition(tuple(part.function for part in parts))
        return Draw(function, total_log_pq(parts, noise), self._rest(parts, inducing))

    def estimate_from_noise(self, inducing: Tensor | None, noise: Noise) -> Estimate:
        """Estimate layer by layer; a layer draws where its estimate could not carry inducing points on."""
        return Estimate(*self._at_points(ESTIMATE, inducing, noise))

    def joint_from_noise(self, inducing: Tensor | None, noise: Noise) -> Draw:
        """Joint draws of all layers that estimate, or would if they could carry inducing points on."""
        return Draw(*self._at_points(JOINT, inducing, noise))

    def _at_points(
        self, mode: SamplingMode, inducing: Tensor | None, noise: Noise
    ) -> tuple[Composition, Tensor | None, Callable[[], Tensor] | None]:
        pieces = noise.split(self._sizes(mode))
        draws = [
            mode.make(layer, piece) if own else partial(self._carried, mode, layer, noise=piece)
            for layer, own, piece in zip(self, self._estimates(), pieces, strict=True)
        ]
        parts, inducing = self._walk(draws, inducing)
        function = Composition(tuple(part.function for part in parts))
        outputs = self._rest(parts, inducing) if self.carries else None
        return function, total_log_pq(parts, noise.draw), outputs

    def _carried(self, mode: SamplingMode, layer: Layer, inducing: Tensor, noise: Noise) -> Draw:
        """A draw; of a joint one the inducing points are the first of the points at which it is known."""
        if not (mode is JOINT and layer.prefers_estimate):
            return layer.draw_from_noise(inducing, noise.draw)
        own = layer.joint_size
        draw, first = noise.draw.tensor_split([own.draw], -1)
        first = first.unflatten(-1, (self._num_inducing, own.points))
        outputs = layer.joint_from_noise(inducing, Noise(draw, first)).function(inducing)
        together = layer.joint_from_noise(inducing, Noise(draw, torch.cat([first, noise.points], -2)))
        return Draw(AfterInducing(together.function, inducing), together.log_pq, outputs)

    def _walk(
        self, draws: Sequence[Callable[..., Drawn]], inducing: Tensor | None
    ) -> tuple[list[Drawn], Tensor | None]:
        """One part for each layer, and the inducing points where they enter the last that needs them."""
        parts: list[Drawn] = []
        for k, (layer, draw) in enumerate(zip(self, draws, strict=True)):
            if inducing is not None and 0 < k <= self._last_inducing:
                inducing = parts[-1].carry(inducing)
            needed = inducing if k <= self._last_inducing else None
            parts.append(layer.located(f"layer {k}, ", draw, needed))
        return parts, inducing

    def _rest(self, parts: Sequence[Drawn], inducing: Tensor | None) -> Callable[[], Tensor] | None:
        """What becomes of the inducing points from there on, once somebody asks."""
        return None if inducing is None else partial(_through, parts[self._last_inducing :], inducing)

    def input_shape(self) -> Shape | None:
        """That of the first layer."""
        return next(iter(self)).input_shape()

    def input_axes(self) -> int | None:
        """That of the first layer."""
        return next(iter(self)).input_axes()

    def config(self) -> ConfigDict:
        """The layers."""
        return {"layers": list(self)}


class Residual(Layer):
    """x + f(x), f a sequence of layers whose output has the shape of its input.

    Args:
        layers: gilib layers and plain modules.

    >>> from gilib.layers.linear import Linear
    >>> block = Residual([Linear(5, 5), nn.ReLU()])
    >>> block.build((5,), BuildContext(num_inducing=3))
    (5,)
    """

    def __init__(self, layers: Sequence[Layer | nn.Module]):
        """Collect the branch."""
        super().__init__()
        self.branch = Sequential(layers)
        self.has_weights = self.branch.has_weights

    def __iter__(self) -> Iterator[Layer]:
        """The layers of the branch in order."""
        return iter(self.branch)

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Build the branch and compare shapes; targets are no pseudo-outputs for it, as x is added to it."""
        branch = self.branch
        output = branch.join(shape, replace(context, pseudo_outputs=None))
        if output != shape:
            raise ValueError(
                f"a residual branch must keep the shape of a point: {list(shape)} became {list(output)}"
            )
        self.replicas, self.noise_size = branch.replicas, branch.noise_size
        self.needs_inducing, self.carries = branch.needs_inducing, branch.carries
        self.prefers_estimate = branch.prefers_estimate
        return output

    @property
    def estimate_size(self) -> NoiseSize:
        """That of the branch."""
        return self.branch.estimate_size

    def draw_from_noise(self, inducing: Tensor | None, noise: Tensor) -> Draw:
        """Draw the branch and add the identity."""
        return self._with_identity(self.branch.draw_from_noise(inducing, noise), inducing)

    def estimate_from_noise(self, inducing: Tensor | None, noise: Noise) -> Estimate:
        """Estimate the branch and add the identity."""
        return self._with_identity(self.branch.estimate_from_noise(inducing, noise), inducing)

    @property
    def joint_size(self) -> NoiseSize:
        """That of the branch."""
        return self.branch.joint_size

    def joint_from_noise(self, inducing: Tensor | None, noise: Noise) -> Draw:
        """A joint draw of the branch, and the identity."""
        return self._with_identity(self.branch.joint_from_noise(inducing, noise), inducing)

    def _with_identity(self, branch: AnyDrawn, inducing: Tensor | None) -> AnyDrawn:
        known = branch.carried is not None
        outputs = partial(_plus, inducing, branch) if known and inducing is not None else None
        return replace(branch, function=ResidualFunction(branch.function), carried=outputs)

    def input_shape(self) -> Shape | None:
        """That of the branch."""
        return self.branch.input_shape()

    def input_axes(self) -> int | None:
        """That of the branch."""
        return self.branch.input_axes()

    def config(self) -> ConfigDict:
        """The layers of the branch."""
        return {"layers": list(self)}


def _through(parts: Sequence[Drawn], inducing: Tensor) -> Tensor:
    """Inducing points after these parts."""
    for part in parts:
        inducing = part.carry(inducing)
    return inducing


def _plus(inducing: Tensor, branch: Drawn) -> Tensor | None:
    """Inducing points after a branch and the identity; None where the branch does not know."""
    outputs = branch.inducing_outputs
    return None if outputs is None else inducing + outputs
