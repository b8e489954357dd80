"""What a layer asks of an approximate posterior over its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from gilib.config import Specification
from gilib.draws.functions import Function
from gilib.linalg import SymmetricOperator
from gilib.randomness import GeneratorLike, Noise, NoiseSize, ReplicaGenerators
from gilib.sites import Site


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
    generator: GeneratorLike | None = None
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


class WeightDistribution(NamedTuple):
    """The distribution of the unknowns of a layer: independent Gaussians over their columns.

    After a draw of all unknowns, their values are the mean, and there is no covariance.

    Attributes:
        mean: `[S, R, I, O]`, or without S.
        covariance: covariance of every column, `[R, O, I, I]`, or one for all columns, `[R, 1, I, I]`; None:
            the mean is a draw.
        log_pq: log P - log Q of what was drawn, minus the divergence of what is integrated out, `[S, R]`,
            nats.
    """

    mean: Tensor
    covariance: Tensor | None
    log_pq: Tensor | None


class PosteriorModule(nn.Module, ABC):
    """An approximate posterior inside a layer.

    Attributes:
        noise_size: how many standard normals a draw takes.
        needs_inducing: whether it reads the inducing points that enter the layer.
        carries: whether its estimate is one function for the inducing points, as its draw is.
        starts_at_targets: whether its pseudo-outputs start at those that the network was given.
    """

    noise_size: int = 0
    needs_inducing: bool = False
    carries: bool = True
    starts_at_targets: bool = False

    @abstractmethod
    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Draw the unknowns of the site.

        Args:
            features: inducing features that enter the layer, `[S, R, M, ...]` (without S at the first
                layer); None where `needs_inducing` is False.
            prior_precision: P, `[S, R, I, I]` or without leading axes.
            noise: standard normals, `[S, R, noise_size]`.

        Returns:
            weights `[S, R, I, O]` and log P - log Q `[S, R]` (nats, summed), None if Q has no density.
        """

    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """Let draws begin around given weights, in place of random ones.

        Args:
            weights: `[I, O]`.
            outputs: what the layer gives with them at the network's inducing points, if there are any.

        Raises:
            TypeError: unless the posterior has parameters of its own.
        """
        raise TypeError(f"{type(self).__name__} cannot begin at given weights: take another posterior")

    @property
    def distribution_size(self) -> int:
        """Number of standard normals that `distribution` needs."""
        return self.noise_size

    def distribution(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> WeightDistribution:
        """Return the distribution of the unknowns, by default a draw of them, without a covariance.

        Args:
            features: as for `draw`.
            prior_precision: as for `draw`.
            noise: standard normals, `[S, R, distribution_size]`.
        """
        weights, log_pq = self.draw(features, prior_precision, noise)
        return WeightDistribution(weights, None, log_pq)

    @property
    def estimate_size(self) -> NoiseSize:
        """How many standard normals an estimate takes, once and at every point."""
        return NoiseSize(self.noise_size)

    def estimate(
        self,
        features: Tensor | None,
        prior_precision: SymmetricOperator,
        noise: Noise,
        function: Callable[[Tensor], Function],
    ) -> tuple[Function, Tensor | None]:
        """A function that samples every point anew; the function of a draw unless the posterior knows better.

        Args:
            features: as for `draw`.
            prior_precision: as for `draw`.
            noise: of the sizes that `estimate_size` tells.
            function: the layer's function with given weights `[..., I, O]`.

        Returns:
            The function, and log P - log Q of what was drawn less the divergence of what was integrated out.
        """
        weights, log_pq = self.draw(features, prior_precision, noise.draw)
        return function(weights), log_pq


@dataclass(frozen=True)
class Posterior(Specification, ABC):
    """A frozen specification of an approximate posterior.

    Attributes:
        short_name: the name in tables and figures, as the papers have it.
    """

    short_name: ClassVar[str]

    @abstractmethod
    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """Create the module for a site.

        Args:
            site: what the posterior is over; its unknowns are `[I, O]`.
            context: what the network knows.

        Raises:
            ValueError: if it cannot be over such a site.
        """


@dataclass(frozen=True)
class InducingPosterior(Posterior, ABC):
    """A posterior that knows a function by what it is at inducing points: what a Gaussian process takes.

    Attributes:
        is_global: whether the inducing points are those that the layers below pass on, or the layer's own.
    """

    is_global: ClassVar[bool] = False

    @abstractmethod
    def points(self, context: BuildContext) -> int:
        """M, at a layer whose inducing points are in the space of its inputs.

        Raises:
            ValueError: if nobody has said.
        """
