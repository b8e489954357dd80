"""Sequences of layers, and residual blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from gilib.config import ConfigDict
from gilib.draws import AnyDrawn, Composition, Draw, Drawn, Estimate, JointDraw
from gilib.draws.drawn import total_log_pq
from gilib.draws.functions import AfterInducing, ResidualFunction
from gilib.layers.base import Layer
from gilib.layers.pointwise import Pointwise
from gilib.posteriors import BuildContext
from gilib.randomness import Noise, NoiseSize, total_size
from gilib.sites import Shape


def as_layer(module: Layer | nn.Module) -> Layer:
    """Return a layer as it is, and a plain torch module wrapped in `Pointwise`."""
    return module if isinstance(module, Layer) else Pointwise(module)


class Sequential(Layer):
    """Layers one after the other; the inducing points pass through the functions that are drawn.

    Below a layer that needs inducing points, a layer whose estimate does not carry them (`Layer.carries`)
    draws instead.

    Args:
        layers: gilib layers, or torch modules without parameters.

    >>> from gilib.layers.linear import Linear
    >>> layer = Sequential([Linear(1, 5), nn.ReLU(), Linear(5, 1)])
    >>> layer.build((1,), BuildContext(num_inducing=3))
    (1,)
    """

    def __init__(self, layers: Sequence[Layer | nn.Module]):
        super().__init__()
        if not layers:
            raise ValueError("a network needs at least one layer")
        self.layers = nn.ModuleList(as_layer(layer) for layer in layers)
        self.has_weights = any(layer.has_weights for layer in self)
        self._last_inducing = 0  # index of the last layer that needs inducing points; 0 if none does
        self._parts: list[Layer | _Below] = []
        self._sizes: dict[type[Drawn], list[NoiseSize]] = {}

    def __iter__(self) -> Iterator[Layer]:
        return cast(Iterator[Layer], iter(self.layers))

    def __getitem__(self, place: int) -> Layer:
        return cast(Layer, self.layers[place])

    def __len__(self) -> int:
        return len(self.layers)

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Build the layers in order, each for the output shape of the one before; errors name its index."""
        last = max((k for k, layer in enumerate(self) if layer.has_weights), default=-1)
        for k, layer in enumerate(self):
            try:
                shape = layer.join(shape, context.as_last(context.last and k == last))
            except ValueError as error:
                raise ValueError(f"layer {k}: {error}") from error
        self.replicas = context.replicas
        self.needs_inducing = any(layer.needs_inducing for layer in self)
        self._last_inducing = max([0, *(k for k, layer in enumerate(self) if layer.needs_inducing)])
        self.carries = all(layer.carries for layer in list(self)[self._last_inducing :])
        self.prefers_estimate = any(layer.prefers_estimate for layer in self)
        self.starts_at_targets = any(layer.starts_at_targets for layer in self)
        self._parts = [
            layer if layer.carries or k >= self._last_inducing else _Below(layer, context.num_inducing or 0)
            for k, layer in enumerate(self)
        ]
        self._sizes = {
            mode: [part.noise_sizes(mode) for part in self._parts] for mode in (Draw, Estimate, JointDraw)
        }
        self.noise_size = self.noise_sizes(Draw).draw
        return shape

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        if not self._sizes:
            raise self.not_built()
        return total_size(self._sizes[mode])

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        drawn: list[Drawn] = []
        layers = zip(self, self._parts, noise.split(self._sizes[mode]), strict=True)
        for k, (layer, part, piece) in enumerate(layers):
            if inducing is not None and 0 < k <= self._last_inducing:
                inducing = drawn[-1].carry(inducing)
            # above the last layer that needs inducing points, they are carried on only if someone asks
            needed = inducing if k <= self._last_inducing else None
            drawn.append(layer.located(f"layer {k}, ", part.sample, needed, piece, mode))
        function = Composition(tuple(part.function for part in drawn))
        outputs = None
        if inducing is not None and (mode is Draw or self.carries):
            outputs = partial(_through, drawn[self._last_inducing :], inducing)
        return mode(function, total_log_pq(drawn, noise), outputs)

    def input_shape(self) -> Shape | None:
        return next(iter(self)).input_shape()

    def input_axes(self) -> int | None:
        return next(iter(self)).input_axes()


class Residual(Layer):
    """x + f(x), where f is a sequence of layers whose output has the shape of its input.

    Args:
        layers: gilib layers, or torch modules without parameters.

    >>> from gilib.layers.linear import Linear
    >>> block = Residual([Linear(5, 5), nn.ReLU()])
    >>> block.build((5,), BuildContext(num_inducing=3))
    (5,)
    """

    def __init__(self, layers: Sequence[Layer | nn.Module]):
        super().__init__()
        self.branch = Sequential(layers)
        self.has_weights = self.branch.has_weights

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.branch)

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Build f, which must keep the shape of a point; the targets do not become its pseudo-outputs."""
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

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        return self.branch.noise_sizes(mode)

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        branch = self.branch.sample(inducing, noise, mode)
        outputs = None
        if inducing is not None and branch.carried is not None:
            outputs = partial(_plus, inducing, branch)
        return replace(branch, function=ResidualFunction(branch.function), carried=outputs)

    def input_shape(self) -> Shape | None:
        return self.branch.input_shape()

    def input_axes(self) -> int | None:
        return self.branch.input_axes()

    def config(self) -> ConfigDict:
        return {"layers": list(self)}


@dataclass(frozen=True, eq=False)
class _Below:
    """Wraps a layer whose estimate does not carry inducing points, below a layer that needs them.

    In an estimate, the layer draws. In a joint draw, the inducing points are the first of all points.
    """

    layer: Layer
    num_inducing: int

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        if not self._is_joint(mode):
            return self.layer.noise_sizes(Draw)
        size = self.layer.noise_sizes(mode)
        return NoiseSize(size.draw + self.num_inducing * size.points, size.points)

    def sample(self, inducing: Tensor, noise: Noise, mode: type[Drawn]) -> Drawn:
        if not self._is_joint(mode):
            return self.layer.sample(inducing, noise, Draw)
        size = self.layer.noise_sizes(mode)
        draw, first = noise.draw.tensor_split([size.draw], -1)
        first = first.unflatten(-1, (self.num_inducing, size.points))
        # both calls use the same normals, so the joint draw has these outputs at its first points
        outputs = self.layer.sample(inducing, Noise(draw, first), mode).function(inducing)
        together = self.layer.sample(inducing, Noise(draw, torch.cat([first, noise.points], -2)), mode)
        return replace(together, function=AfterInducing(together.function, inducing), carried=outputs)

    def _is_joint(self, mode: type[Drawn]) -> bool:
        return mode is JointDraw and self.layer.prefers_estimate


def _through(parts: Sequence[Drawn], inducing: Tensor) -> Tensor:
    for part in parts:
        inducing = part.carry(inducing)
    return inducing


def _plus(inducing: Tensor, branch: Drawn) -> Tensor | None:
    """Return inducing points plus their image under the branch; None if the branch does not know it."""
    outputs = branch.inducing_outputs
    return None if outputs is None else inducing + outputs
