"""Base classes of approximate posteriors, and what a network tells them when it is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from gilib.arguments import Count
from gilib.config import Specification
from gilib.draws.functions import Function
from gilib.linalg import SymmetricOperator
from gilib.randomness import GeneratorLike, Noise, NoiseSize, ReplicaGenerators
from gilib.sites import Site

WithWeights = Callable[[Tensor], Function]  # returns a layer's function with given weights `[..., I, O]`


@dataclass(frozen=True)
class BuildContext:
    """The properties of a network that layers need to create their parameters, and methods that create them.

    Attributes:
        num_inducing: M, the number of the network's inducing points; None if it has none.
        replicas: shape of the replica axes R.
        pseudo_outputs: initial pseudo-outputs of the last layer, `[M, O]`; None for standard normals.
        last: whether the layer is the last one with weights.
        generator: source of initial values; `ReplicaGenerators` give each replica those of a network alone.
        dtype: dtype of the parameters.
        device: device of the parameters.
    """

    num_inducing: int | None = None
    replicas: tuple[int, ...] = ()
    pseudo_outputs: Tensor | None = None
    last: bool = False
    generator: GeneratorLike | None = None
    dtype: torch.dtype | None = None
    device: torch.device | None = None

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normals `[R, *shape]`."""
        dtype = self.dtype or torch.get_default_dtype()
        if isinstance(self.generator, ReplicaGenerators):
            return self.generator.normal((1, *self.replicas, *shape), dtype, self.device)[0]
        size = (*self.replicas, *shape)
        return torch.randn(size, generator=self.generator, dtype=dtype, device=self.device)

    def full(self, shape: Sequence[int], value: float) -> Tensor:
        """Return a tensor `[R, *shape]` filled with `value`."""
        return torch.full((*self.replicas, *shape), value, dtype=self.dtype, device=self.device)

    def weights(self, site: Site, *more: int) -> WeightParameter:
        """Create a parameter `[R, I, O, *more]` in units of weights; it starts as a draw from NealPrior."""
        return WeightParameter(self.normal(site.fan_in, site.outputs, *more), site.scale)

    def as_last(self, last: bool) -> BuildContext:
        """Return a copy for a layer that is, or is not, the last one; only the last has pseudo-outputs."""
        return replace(self, last=last, pseudo_outputs=self.pseudo_outputs if last else None)


class WeightParameter(nn.Module):
    """A parameter in units of weights; call it to get its value.

    The stored parameter is √I times as large, because Adam moves every parameter by about its learning rate,
    and the weights of wide layers are small (Ober & Aitchison, 2021, App. H, Eq. 83).

    Attributes:
        scaled: the stored parameter, `[R, I, O, ...]`, of scale one.

    >>> from gilib.sites import DenseWeights
    >>> mean = BuildContext(replicas=(2,)).weights(DenseWeights(channels=4, outputs=3))
    >>> mean().shape, bool((mean() == mean.scaled / 2).all())
    (torch.Size([2, 4, 3]), True)
    """

    def __init__(self, scaled: Tensor, scale: float):
        super().__init__()
        self.scaled, self.scale = nn.Parameter(scaled), scale

    def forward(self) -> Tensor:
        """Return the value in units of weights."""
        return self.scaled / self.scale

    @torch.no_grad()
    def assign(self, value: Tensor) -> None:
        """Set the value, given in units of weights."""
        self.scaled.copy_(value * self.scale)


class WeightDistribution(NamedTuple):
    """Independent Gaussians over the columns of W, given whatever had to be drawn first.

    Attributes:
        mean: the means, `[S, R, I, O]`, or without S.
        covariance: one covariance for each column, `[R, O, I, I]`, or a shared one, `[R, 1, I, I]`; None if
            `mean` is a draw.
        log_pq: log P - log Q of what was drawn, minus the divergence of the Gaussians; nats, `[S, R]`.
    """

    mean: Tensor
    covariance: Tensor | None
    log_pq: Tensor | None


class PosteriorModule(nn.Module, ABC):
    """The parameters of an approximate posterior in one layer.

    A subclass creates its parameters from the `BuildContext`, so that they have the replica axes R in front:
    those in units of weights by `context.weights`, and those without a unit, such as logarithms and ratios,
    by `nn.Parameter(context.full(...))` or `nn.Parameter(context.normal(...))`. It sets `noise_size` and
    defines `draw`. The other methods have defaults, which a subclass overrides if it can do better.

    The attributes `noise_size`, `needs_inducing`, `carries` and `starts_at_targets` are as in a `Layer`.
    """

    noise_size: int
    needs_inducing: bool = False
    carries: bool = True
    starts_at_targets: bool = False

    @abstractmethod
    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Draw the weights W from Q, as a deterministic function of the noise.

        Args:
            features: inducing features that enter the layer, `[S, R, M, ...]`, without S at the first layer;
                None if `needs_inducing` is False.
            prior_precision: P, the precision of the prior N(0, P⁻¹) over each column of W; `[S, R, I, I]`, or
                without leading axes.
            noise: standard normals, `[S, R, noise_size]`.

        Returns:
            The weights, `[S, R, I, O]`, and log P - log Q, `[S, R]`, in nats and summed over the weights, or
            None if Q has no density.
        """

    def checked_draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Call `draw`, and check the shapes of what it returns.

        Raises:
            TypeError: if it does not return a pair.
            ValueError: if the weights are not `[S, R, I, O]`, or log P - log Q is not `[S, R]`.
        """
        drawn, who = self.draw(features, prior_precision, noise), type(self).__name__
        if not isinstance(drawn, tuple) or len(drawn) != 2:
            raise TypeError(
                f"{who}.draw must return a pair, weights and log P - log Q, got {type(drawn).__name__}"
            )
        weights, log_pq = drawn
        lead, inputs = noise.shape[:-1], prior_precision.size
        if weights.shape[:-1] != (*lead, inputs):
            raise ValueError(
                f"{who}.draw must return weights [S, R, I, O], here {[*lead, inputs, 'O']}, "
                f"got {list(weights.shape)}"
            )
        if log_pq is not None and log_pq.shape != lead:
            raise ValueError(
                f"{who}.draw must return one log P - log Q for each draw, [S, R], here {list(lead)}, "
                f"got {list(log_pq.shape)}: sum over the weights"
            )
        return weights, log_pq

    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """Set the parameters so that draws lie around given weights, for example those of a trained network.

        Args:
            weights: the weights, `[I, O]`.
            outputs: outputs of the layer with these weights at the network's inducing points; None if the
                posterior does not need inducing points.

        Raises:
            TypeError: if the posterior cannot start at given weights, which is the default.
        """
        raise TypeError(f"{type(self).__name__} cannot begin at given weights: take another posterior")

    @property
    def distribution_size(self) -> int:
        """Number of standard normals that `distribution` needs."""
        return self.noise_size

    def distribution(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> WeightDistribution:
        """Return the columns of W as Gaussians, for Gaussian processes, which can integrate over them.

        Arguments are those of `draw`, but the noise is `[S, R, distribution_size]`. The default is a draw,
        which has no covariance.
        """
        weights, log_pq = self.checked_draw(features, prior_precision, noise)
        return WeightDistribution(weights, None, log_pq)

    @property
    def estimate_size(self) -> NoiseSize:
        """Numbers of standard normals that an estimate needs, in total and for each point."""
        return NoiseSize(self.noise_size)

    def estimate(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Noise, function: WithWeights
    ) -> tuple[Function, Tensor | None]:
        """Return a function for training, which may sample each point independently to reduce variance.

        Arguments are those of `draw`, but the noise has the sizes `estimate_size`, and `function` returns the
        layer's function with given weights `[..., I, O]`. The default is the function of one draw.

        Returns:
            The function, and log P - log Q of what was drawn, minus the divergence of what was integrated
            out; nats, `[S, R]`.
        """
        weights, log_pq = self.checked_draw(features, prior_precision, noise.draw)
        return function(weights), log_pq


@dataclass(frozen=True)
class Posterior(Specification, ABC):
    """A specification of an approximate posterior: a frozen dataclass that builds a module for each layer.

    Attributes:
        short_name: name in tables and figures, taken from the papers.
    """

    short_name: ClassVar[str]

    @abstractmethod
    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """Create the module that holds the parameters for one layer.

        Args:
            site: describes the unknowns `[I, O]`: weights of a dense layer or of a convolution, or inducing
                outputs of a Gaussian process.
            context: describes the network, and makes parameters.

        Raises:
            ValueError: if this posterior does not apply to such a site.
        """


@dataclass(frozen=True)
class InducingPosterior(Posterior, ABC):
    """A posterior that a Gaussian process can use, because it describes a function by inducing outputs.

    Attributes:
        is_global: whether the inducing inputs come from the layers below; if not, the layer has its own.
    """

    is_global: ClassVar[bool] = False

    def points(self, context: BuildContext) -> int:
        """Return M, the number of inducing points of a Gaussian process with this posterior: the network's.

        Raises:
            ValueError: if the network has no inducing points.
        """
        if context.num_inducing is None:
            raise ValueError(
                f"{type(self).__name__} needs inducing points: give the network inducing_points of shape "
                "[M, ...], or take a posterior with points of its own, such as LocalInducing(num_inducing=M)"
            )
        return context.num_inducing


@dataclass(frozen=True)
class OwnInducing(InducingPosterior, ABC):
    """A posterior of a Gaussian process with inducing inputs of its own."""

    num_inducing: Count | None = None  # M; None: as many as the network has inducing points

    def points(self, context: BuildContext) -> int:
        return own_points(self.num_inducing, context, type(self).__name__)


def own_points(given: int | None, context: BuildContext, name: str) -> int:
    """Return M of a layer with its own inducing inputs: the given number, or the network's."""
    points = given or context.num_inducing
    if points is None:
        raise ValueError(f"say how many inducing inputs the layer has: {name}(num_inducing=100)")
    return points
