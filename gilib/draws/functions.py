"""Functions that layers draw, alone and composed, and the Gaussians that some of them end with."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]


class Moments(NamedTuple):
    """Gaussians at every point, given what was sampled before; from `moments`, independent over outputs.

    Attributes:
        mean: `[S, R, N, O]`.
        variance: `[S, R, N, O]`; None if the mean is the output.
    """

    mean: Tensor
    variance: Tensor | None = None


def moments(function: Function, x: Tensor, kind: str = "moments") -> Moments:
    """Return the moments of a function at `x`, `[..., N, D]`, or its output if it is not Gaussian.

    `kind` is the method of `GaussianFunction` to call: "moments", "marginals" or "covariances".
    """
    if isinstance(function, Composite):
        return function.moments(x, kind)
    if not isinstance(function, GaussianFunction):
        return Moments(function(x))
    return getattr(function, kind)(x)


class GaussianFunction(ABC):
    """A function whose outputs are Gaussian, given its input and what was drawn once.

    Attributes:
        approximate: whether several points have the right joint distribution only on average over draws.
    """

    approximate: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Return a sample at `x`, `[..., N, D]`."""

    @abstractmethod
    def moments(self, x: Tensor) -> Moments:
        """Return mean and variance at `x`; a sample if outputs are not independent."""

    def marginals(self, x: Tensor) -> Moments:
        """Return mean and variance of every output by itself, even if outputs depend on each other."""
        return self.moments(x)

    def covariances(self, x: Tensor) -> Moments:
        """Return mean and covariances of the points, `[S, R, N, N, O]`; by default a sample."""
        return Moments(self(x))


class FixedFunction:
    """A layer's function that is not random itself, such as an activation."""


class Composite(ABC):
    """A function that is made of other functions."""

    @abstractmethod
    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        """Evaluate at x, each part by `call(part, input)`."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.evaluate(x, lambda part, value: part(value))

    def moments(self, x: Tensor, kind: str = "moments") -> Moments:
        """Return the moments of this function; `kind` is as for the function `moments`."""
        return Moments(self(x))


@dataclass(frozen=True)
class Composition(Composite):
    """Functions applied one after the other."""

    functions: Sequence[Function]

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        for function in self.functions:
            x = call(function, x)
        return x

    def moments(self, x: Tensor, kind: str = "moments") -> Moments:
        for function in self.functions[:-1]:
            x = function(x)
        return moments(self.functions[-1], x, kind)


@dataclass(frozen=True)
class ResidualFunction(Composite):
    """x + f(x)."""

    branch: Function

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        return x + call(self.branch, x)

    def moments(self, x: Tensor, kind: str = "moments") -> Moments:
        mean, variance = moments(self.branch, x, kind)
        return Moments(x + mean, variance)


@dataclass(frozen=True)
class AfterInducing(Composite):
    """A joint draw at M inducing points and N others, evaluated at the others."""

    function: Function  # known at M + N points
    inducing: Tensor  # `[..., M, D]`

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        lead = torch.broadcast_shapes(self.inducing.shape[:-2], x.shape[:-2])
        parts = [points.expand(*lead, *points.shape[-2:]) for points in (self.inducing, x)]
        return call(self.function, torch.cat(parts, -2))[..., self.inducing.shape[-2] :, :]


@dataclass(frozen=True)
class BranchesFunction(Composite):
    """Functions of the same input, whose outputs are joined."""

    functions: Sequence[Function]
    joined: Callable[[Sequence[Tensor]], Tensor]  # `total` or `concatenated`, of outputs and of variances

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        return self.joined([call(function, x) for function in self.functions])

    def moments(self, x: Tensor, kind: str = "moments") -> Moments:
        """Join the means and the variances, since the functions are independent."""
        parts = [moments(function, x, kind) for function in self.functions]
        mean = self.joined([part.mean for part in parts])
        if all(part.variance is None for part in parts):
            return Moments(mean)
        known = [p.mean.new_zeros(p.mean.shape) if p.variance is None else p.variance for p in parts]
        return Moments(mean, self.joined(known))


def concatenated(outputs: Sequence[Tensor]) -> Tensor:
    """Return outputs `[..., N, O_k]` next to each other; leading axes are broadcast."""
    lead = torch.broadcast_shapes(*(output.shape[:-1] for output in outputs))
    return torch.cat([output.expand(*lead, output.shape[-1]) for output in outputs], -1)


def total(values: Iterable[Tensor]) -> Tensor:
    """Return the sum of one or more tensors."""
    return reduce(operator.add, values)
