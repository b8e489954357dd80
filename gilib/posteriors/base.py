"""What a layer asks of an approximate posterior over its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.config import Specification
from gilib.linalg import SymmetricOperator
from gilib.randomness import ReplicaGenerators, Source


@dataclass(frozen=True)
class BuildContext:
    """What a network knows and its layers need in order to create their parameters.

    Attributes:
        num_inducing: M, or None in a network without inducing points.
        replicas: shape of the replica axes R.
        pseudo_outputs: initial pseudo-outputs of the last layer `[M, O]`, or None for standard normals.
        last: whether the layer is the last with weights.
        generator: source of initial values; with `ReplicaGenerators` every replica starts as it would alone.
        dtype: of the parameters.
        device: of the parameters.
    """

    num_inducing: int | None = None
    replicas: tuple[int, ...] = ()
    pseudo_outputs: Tensor | None = None
    last: bool = False
    generator: Source | None = None
    dtype: torch.dtype | None = None
    device: torch.device | None = None

    def normal(self, *shape: int) -> Tensor:
        """Standard normals `[R, *shape]`."""
        dtype = self.dtype or torch.get_default_dtype()
        if isinstance(self.generator, ReplicaGenerators):
            return self.generator.normal((1, *self.replicas, *shape), dtype, self.device)[0]
        size = (*self.replicas, *shape)
        return torch.randn(size, generator=self.generator, dtype=dtype, device=self.device)

    def full(self, shape: Sequence[int], value: float) -> Tensor:
        """A constant `[R, *shape]`."""
        return torch.full((*self.replicas, *shape), value, dtype=self.dtype, device=self.device)

    def as_last(self, last: bool) -> BuildContext:
        """The same context for the last layer, or for another one."""
        return replace(self, last=last, pseudo_outputs=self.pseudo_outputs if last else None)


class PosteriorModule(nn.Module, ABC):
    """An approximate posterior inside a layer.

    Attributes:
        needs_inducing: whether `draw` reads the inducing points that enter the layer.
    """

    needs_inducing: bool = False

    @abstractmethod
    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw the weights of the layer.

        Args:
            features: Φ, inducing features that enter the layer, bias column included, `[S, R, M, I]` (without
                S at the first layer); None where `needs_inducing` is False.
            prior_precision: P, `[S, R, I, I]` or without leading axes.
            noise: standard normals, `[S, R, I, O]`.

        Returns:
            weights `[S, R, I, O]` and log P - log Q `[S, R]` (nats, summed).
        """


@dataclass(frozen=True)
class Posterior(Specification, ABC):
    """A frozen specification of an approximate posterior.

    Attributes:
        short: the name in tables and figures, as the papers have it.
    """

    short: ClassVar[str]

    @abstractmethod
    def build(
        self, fan_in: int, outputs: int, bias: bool, well_scaled: bool, context: BuildContext
    ) -> PosteriorModule:
        """Create the module for weights `[I, O]`.

        Args:
            fan_in: I, bias included.
            outputs: O.
            bias: whether the last feature is the constant 1.
            well_scaled: whether the prior keeps float32 factorisations safe.
            context: what the network knows.
        """
