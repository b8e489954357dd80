"""Layers side by side with the same input, whose outputs are added or concatenated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

from torch import Tensor, nn

from gilib.draws import AnyDrawn, Draw, Drawn
from gilib.draws.drawn import total_log_pq
from gilib.draws.functions import BranchesFunction, concatenated, total
from gilib.layers.base import Layer
from gilib.layers.compose import as_layer
from gilib.posteriors import BuildContext
from gilib.randomness import Noise, NoiseSize, total_size
from gilib.sites import Shape


class Branches(Layer):
    """Base class of layers, or modules without parameters, whose outputs the function `joined` combines."""

    joined: Callable[[Sequence[Tensor]], Tensor]

    def __init__(self, branches: Sequence[Layer | nn.Module]):
        super().__init__()
        if not branches:
            raise ValueError(f"{type(self).__name__} needs at least one branch")
        self.branches = nn.ModuleList(as_layer(branch) for branch in branches)
        self.has_weights = any(branch.has_weights for branch in self)

    def __iter__(self) -> Iterator[Layer]:
        return cast(Iterator[Layer], iter(self.branches))

    @abstractmethod
    def output_shape_of(self, shapes: Sequence[Shape]) -> Shape:
        """Return the shape of an output point, or raise ValueError if those of the branches do not fit."""

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Build the branches. None counts as the last layer, so targets do not become pseudo-outputs."""
        output = self.output_shape_of([branch.join(shape, context.as_last(False)) for branch in self])
        self.replicas = context.replicas
        self.noise_size = sum(branch.noise_size for branch in self)
        self.needs_inducing = any(branch.needs_inducing for branch in self)
        self.carries = all(branch.carries for branch in self)
        self.prefers_estimate = any(branch.prefers_estimate for branch in self)
        self.starts_at_targets = any(branch.starts_at_targets for branch in self)
        return output

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        return total_size(branch.noise_sizes(mode) for branch in self)

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        pieces = noise.split([branch.noise_sizes(mode) for branch in self])
        parts = [
            branch.located(f"branch {k}, ", branch.sample, inducing, piece, mode)
            for k, (branch, piece) in enumerate(zip(self, pieces, strict=True))
        ]
        function = BranchesFunction(tuple(part.function for part in parts), self.joined)
        outputs = None
        if inducing is not None and (mode is Draw or self.carries):
            outputs = partial(_joined, self.joined, parts, inducing)
        return mode(function, total_log_pq(parts, noise), outputs)

    def input_shape(self) -> Shape | None:
        return next((shape for branch in self if (shape := branch.input_shape()) is not None), None)

    def input_axes(self) -> int | None:
        return next((axes for branch in self if (axes := branch.input_axes()) is not None), None)


class Sum(Branches):
    """f_1(x) + f_2(x) + ..., where each f_k is a layer; for example a residual branch and a strided shortcut.

    Args:
        branches: gilib layers, or torch modules without parameters; their outputs must have the same shape.

    >>> from gilib.layers.linear import Linear
    >>> block = Sum([Linear(5, 3), Linear(5, 3)])
    >>> block.build((5,), BuildContext(num_inducing=4))
    (3,)
    """

    joined = staticmethod(total)

    def output_shape_of(self, shapes: Sequence[Shape]) -> Shape:
        if any(shape != shapes[0] for shape in shapes):
            given = [list(shape) for shape in shapes]
            raise ValueError(f"the branches of a sum must give one shape, got {given}")
        return shapes[0]


class Concat(Branches):
    """(f_1(x), f_2(x), ...), the concatenated outputs of independent layers.

    For example one process for the mean of the targets and one for the scale of their noise
    (`gilib.likelihoods.HeteroscedasticGaussian`).

    Args:
        branches: gilib layers, or torch modules without parameters; their outputs must be vectors.

    >>> from gilib.layers.linear import Linear
    >>> Concat([Linear(5, 3), Linear(5, 1)]).build((5,), BuildContext(num_inducing=4))
    (4,)
    """

    joined = staticmethod(concatenated)

    def output_shape_of(self, shapes: Sequence[Shape]) -> Shape:
        if any(len(shape) != 1 for shape in shapes):
            given = [list(shape) for shape in shapes]
            raise ValueError(f"branches whose outputs are joined must give vectors, got shapes {given}")
        return (sum(shape[0] for shape in shapes),)


def _joined(joined: Callable[[Sequence[Tensor]], Tensor], parts: Sequence[Drawn], inducing: Tensor) -> Tensor:
    return joined([part.carry(inducing) for part in parts])
