"""Sequences and residual blocks: composed draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from gilib.config import Config
from gilib.draws import (
    CompositeDraw,
    Composition,
    Draw,
    LocalReparameterisation,
    ResidualFunction,
    after,
)
from gilib.layers.base import Layer, Shape
from gilib.layers.pointwise import Pointwise
from gilib.posteriors import BuildContext
from gilib.randomness import Source


def as_layer(module: Layer | nn.Module) -> Layer:
    """A gilib layer as it is; a plain module wrapped as `Pointwise`."""
    return module if isinstance(module, Layer) else Pointwise(module)


def _pass(draws: Sequence[Draw], inducing: Tensor) -> Tensor:
    """The inducing points of the first draw, after all of them."""
    for drawn in draws:
        inducing = after(drawn, inducing)
    return inducing


class Sequential(Layer):
    """Layers one after the other; inducing points travel through what each layer drew.

    Args:
        layers: gilib layers and plain modules.

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

    def __iter__(self) -> Iterator[Layer]:
        """The layers in order."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Build every layer for the shape that the one before it gives."""
        last = max((k for k, layer in enumerate(self) if layer.has_weights), default=-1)
        for k, layer in enumerate(self):
            try:
                shape = layer.build(shape, context.as_last(context.last and k == last))
            except ValueError as error:
                raise ValueError(f"layer {k}: {error}") from error
        self.replicas = context.replicas
        self.noise_size = sum(layer.noise_size for layer in self)
        self.needs_inducing = any(layer.needs_inducing for layer in self)
        return shape

    def draw_from_noise(self, inducing: Tensor | None, noise: Tensor) -> Draw:
        """Draw layer by layer; inducing points go no further than the last layer that needs them."""
        last = max((k for k, layer in enumerate(self) if layer.needs_inducing), default=0)
        draws: list[Draw] = []
        pieces = noise.split([layer.noise_size for layer in self], dim=-1)
        for k, (layer, piece) in enumerate(zip(self, pieces, strict=True)):
            if 0 < k <= last and inducing is not None:
                inducing = after(draws[-1], inducing)
            draws.append(layer.named_draw(inducing if k <= last else None, piece, f"layer {k}, "))
        functions = tuple(drawn.function for drawn in draws)
        log_pq = sum((drawn.density for drawn in draws), noise.new_zeros(noise.shape[:-1]))
        finish = None if inducing is None else partial(_pass, draws[last:], inducing)
        return CompositeDraw(Composition(functions), log_pq, finish)

    def local_reparameterisation(
        self, num_samples: int, generator: Source | None = None
    ) -> LocalReparameterisation:
        """Compose the layers' estimators."""
        parts = [layer.local_reparameterisation(num_samples, generator) for layer in self]
        log_pq = sum((part.log_pq for part in parts), torch.zeros(()))
        return LocalReparameterisation(Composition(tuple(part.function for part in parts)), log_pq)

    def input_shape(self) -> Shape | None:
        """That of the first layer."""
        return next(iter(self)).input_shape()

    def config(self) -> Config:
        """The layers."""
        return {"layers": list(self)}


class Residual(Sequential):
    """x + f(x), f a sequence of layers whose output has the shape of its input.

    Args:
        layers: gilib layers and plain modules.

    >>> from gilib.layers.linear import Linear
    >>> block = Residual([Linear(5, 5), nn.ReLU()])
    >>> block.build((5,), BuildContext(num_inducing=3))
    (5,)
    """

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Build the branch and compare shapes."""
        output = super().build(shape, context)
        if output != shape:
            raise ValueError(
                f"a residual branch must keep the shape of a point: {list(shape)} became {list(output)}"
            )
        return output

    def draw_from_noise(self, inducing: Tensor | None, noise: Tensor) -> Draw:
        """Draw the branch and add the identity."""
        branch = super().draw_from_noise(inducing, noise)
        assert isinstance(branch.function, Composition)
        finish = None if inducing is None else lambda: inducing + after(branch, inducing)
        return CompositeDraw(ResidualFunction(branch.function), branch.log_pq, finish)

    def local_reparameterisation(
        self, num_samples: int, generator: Source | None = None
    ) -> LocalReparameterisation:
        """The branch's estimator, plus the identity."""
        branch = super().local_reparameterisation(num_samples, generator)
        return LocalReparameterisation(lambda x: x + branch(x), branch.log_pq)
