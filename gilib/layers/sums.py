"""Sums of layers: residual blocks whose shortcut is a layer too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from gilib.config import Config
from gilib.draws import CompositeDraw, Draw, LocalReparameterisation, SumFunction, after, total
from gilib.layers.base import Layer, Shape
from gilib.layers.compose import as_layer
from gilib.posteriors import BuildContext
from gilib.randomness import Source


class Sum(Layer):
    """f_1(x) + f_2(x) + ..., every branch a layer; for example a residual branch and a strided shortcut.

    Args:
        branches: gilib layers and plain modules, all of which give the same shape.

    >>> from gilib.layers.linear import Linear
    >>> block = Sum([Linear(5, 3), Linear(5, 3)])
    >>> block.build((5,), BuildContext(num_inducing=4))
    (3,)
    """

    def __init__(self, branches: Sequence[Layer | nn.Module]):
        """Collect the branches."""
        super().__init__()
        if not branches:
            raise ValueError("a sum needs at least one branch")
        self.branches = nn.ModuleList(as_layer(branch) for branch in branches)
        self.has_weights = any(branch.has_weights for branch in self)

    def __iter__(self) -> Iterator[Layer]:
        """The branches in order."""
        for branch in self.branches:
            assert isinstance(branch, Layer)
            yield branch

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Build every branch and compare shapes; none is the last layer, whose pseudo-outputs are targets."""
        outputs = [branch.build(shape, context.as_last(False)) for branch in self]
        if any(output != outputs[0] for output in outputs):
            shapes = [list(output) for output in outputs]
            raise ValueError(f"the branches of a sum must give one shape, got {shapes}")
        self.replicas = context.replicas
        self.noise_size = sum(branch.noise_size for branch in self)
        self.needs_inducing = any(branch.needs_inducing for branch in self)
        return outputs[0]

    def draw_from_noise(self, inducing: Tensor | None, noise: Tensor) -> Draw:
        """Draw every branch from the same inducing points."""
        pieces = noise.split([branch.noise_size for branch in self], dim=-1)
        draws = [
            branch.named_draw(inducing, piece, f"branch {k}, ")
            for k, (branch, piece) in enumerate(zip(self, pieces, strict=True))
        ]
        log_pq = sum((drawn.density for drawn in draws), noise.new_zeros(noise.shape[:-1]))
        finish = None if inducing is None else lambda: total(after(drawn, inducing) for drawn in draws)
        return CompositeDraw(SumFunction(tuple(drawn.function for drawn in draws)), log_pq, finish)

    def local_reparameterisation(
        self, num_samples: int, generator: Source | None = None
    ) -> LocalReparameterisation:
        """The sum of the branches' estimators."""
        parts = [branch.local_reparameterisation(num_samples, generator) for branch in self]
        log_pq = sum((part.log_pq for part in parts), torch.zeros(()))
        return LocalReparameterisation(SumFunction(tuple(part.function for part in parts)), log_pq)

    def input_shape(self) -> Shape | None:
        """That of the first branch that knows it."""
        return next((shape for branch in self if (shape := branch.input_shape()) is not None), None)

    def config(self) -> Config:
        """The branches."""
        return {"branches": list(self)}
