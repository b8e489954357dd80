"""Sequences and residual blocks: composed draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from gilib.config import ConfigDict
from gilib.draws import AnyDrawn, Composition, Draw, Drawn, JointDraw
from gilib.draws.drawn import total_log_pq
from gilib.draws.functions import AfterInducing, ResidualFunction
from gilib.layers.base import Layer
from gilib.layers.pointwise import Pointwise
from gilib.posteriors import BuildContext
from gilib.randomness import Noise, NoiseSize, total_size
from gilib.sites import Shape


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

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        """That of all layers together."""
        return total_size(size for size, _ in self._samplers(mode))

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        """Layer by layer; a layer draws where in this mode it could not carry inducing points on."""
        sizes, samplers = zip(*self._samplers(mode), strict=True)
        parts: list[Drawn] = []
        for k, (sampler, piece) in enumerate(zip(samplers, noise.split(sizes), strict=True)):
            if inducing is not None and 0 < k <= self._last_inducing:
                inducing = parts[-1].carry(inducing)
            needed = inducing if k <= self._last_inducing else None
            parts.append(self[k].located(f"layer {k}, ", sampler, needed, piece))
        function = Composition(tuple(part.function for part in parts))
        outputs = None
        if inducing is not None and (mode is Draw or self.carries):
            outputs = partial(_through, parts[self._last_inducing :], inducing)
        return mode(function, total_log_pq(parts, noise), outputs)

    def _samplers(self, mode: type[Drawn]) -> Iterator[tuple[NoiseSize, Callable[..., Drawn]]]:
        """How much noise each layer takes, and what it samples, of inducing points and noise."""
        for k, layer in enumerate(self):
            own = mode if layer.carries or k >= self._last_inducing else Draw
            if own is not mode and mode is JointDraw and layer.prefers_estimate:
                size = layer.noise_sizes(mode)
                size = NoiseSize(size.draw + self._num_inducing * size.points, size.points)
                yield size, partial(self._carried, layer)
            else:
                yield layer.noise_sizes(own), partial(layer.sample, mode=own)

    def _carried(self, layer: Layer, inducing: Tensor, noise: Noise) -> JointDraw:
        """A joint draw whose first points are the inducing points, so that it carries them on."""
        size = layer.noise_sizes(JointDraw)
        draw, first = noise.draw.tensor_split([size.draw], -1)
        first = first.unflatten(-1, (self._num_inducing, size.points))
        outputs = layer.sample(inducing, Noise(draw, first), JointDraw).function(inducing)
        points = torch.cat([first, noise.points], -2)
        together = layer.sample(inducing, Noise(draw, points), JointDraw)
        return replace(together, function=AfterInducing(together.function, inducing), carried=outputs)

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

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        """That of the branch."""
        return self.branch.noise_sizes(mode)

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        """Sample the branch and add the identity."""
        branch = self.branch.sample(inducing, noise, mode)
        outputs = None
        if inducing is not None and branch.carried is not None:
            outputs = partial(_plus, inducing, branch)
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
