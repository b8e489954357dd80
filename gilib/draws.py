"""What a layer draws: a function, and how probable it is under the prior against the posterior."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from gilib.arithmetic import exact_products

__all__ = [
    "Composition",
    "Draw",
    "Drawn",
    "Estimate",
    "Evaluated",
    "FixedFunction",
    "GaussianFunction",
    "JointDraw",
    "Moments",
    "Recording",
    "record",
]

Function = Callable[[Tensor], Tensor]


class Moments(NamedTuple):
    """Gaussians at every point, independent of each other.

    Attributes:
        mean: `[S, R, N, O]`.
        variance: of what is left to be sampled at a point given everything before it, `[S, R, N, O]`; None:
            nothing, the mean is the output.
    """

    mean: Tensor
    variance: Tensor | None = None


def moments(function: Function, x: Tensor) -> Moments:
    """The output of a function, with its last sampling left undone where it is Gaussian."""
    if isinstance(function, Composite | GaussianFunction):
        return function.moments(x)
    return Moments(function(x))


class GaussianFunction(ABC):
    """A function whose outputs are Gaussian, given its input and what was drawn once."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """A sample at `x`, `[..., N, D]`."""

    @abstractmethod
    def moments(self, x: Tensor) -> Moments:
        """Mean and variance at `x`."""


@dataclass(frozen=True)
class Drawn(ABC):
    """S functions from a posterior over functions: a `Draw` or an `Estimate`.

    Attributes:
        function: maps inputs `[..., N, D]` to outputs `[S, R, ..., N, O]`.
        log_pq: log P - log Q of everything that was drawn, less the Kullback-Leibler divergence of what was
            integrated out, `[S, R]`, nats, summed; None: what was drawn has no density.
        inducing_outputs: what became of the inducing points, `[S, R, M, ...]`; None: there were none, or
            the function has to be asked.

    It unpacks into the first two: `function, log_pq = layer.draw(u)`.
    """

    function: Function
    log_pq: Tensor | None
    inducing_outputs: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the functions at `x`."""
        with exact_products():
            return self.function(x)

    def moments(self, x: Tensor) -> Moments:
        """Evaluate at `x`, and leave the last sampling undone if it is Gaussian.

        Deep Gaussian processes end so: the likelihood can integrate over it in closed form.
        """
        with exact_products():
            return moments(self.function, x)

    def __iter__(self) -> Iterator[Function | Tensor | None]:
        """Unpack into function and log_pq."""
        yield self.function
        yield self.log_pq

    @property
    def density(self) -> Tensor:
        """log_pq, where a bound needs it.

        Raises:
            TypeError: if what was drawn has none.
        """
        if self.log_pq is None:
            raise TypeError(
                "these functions have no density Q (chains, an ensemble): they predict, but bound no evidence"
            )
        return self.log_pq

    def carry(self, inducing: Tensor) -> Tensor:
        """What became of the inducing points from which this was drawn."""
        return self.function(inducing) if self.inducing_outputs is None else self.inducing_outputs


@dataclass(frozen=True)
class Draw(Drawn):
    """S functions drawn from a posterior over functions.

    A draw is a value: evaluating it twice, at all points or in batches, evaluates the same functions.
    """


@dataclass(frozen=True)
class JointDraw(Draw):
    """A draw that is known at N points only: exactly what a Gaussian process is there, jointly.

    The noise of the points is part of it, as for an `Estimate`. What was drawn once is the same at any
    points; the rest is drawn for those at which it is evaluated: evaluate it once, at all of them.
    """


@dataclass(frozen=True)
class Estimate(Drawn):
    """The other face of a posterior, for training: every point is sampled anew, what can be is integrated.

    For factorised Gaussian weights the outputs at one point are Gaussian; sampling them in place of the
    weights lowers the variance of the gradient (local reparameterisation; Kingma, Salimans & Welling, 2015).
    Points are independent given what was drawn once, as the sum over points in the ELBO allows. They do not
    share a function, so `predict` and `iwbo` refuse an estimate. The noise of the points is part of the
    value: it was made for N points, and evaluating it twice there gives the same outputs.
    """


class FixedFunction(ABC):
    """A layer's function that is not random itself: an activation, a pooling, a normalisation."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate at `x`, `[..., N, D]`."""


class Composite(ABC):
    """A function that is made of other functions."""

    @abstractmethod
    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        """Evaluate at x, every part through `call(part, input)`."""

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate at x."""
        return self.evaluate(x, lambda part, value: part(value))

    def moments(self, x: Tensor) -> Moments:
        """Those of what is random last."""
        return Moments(self(x))


@dataclass(frozen=True)
class Composition(Composite):
    """Functions applied one after the other."""

    functions: Sequence[Function]

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        """Evaluate all of them."""
        for function in self.functions:
            x = call(function, x)
        return x

    def moments(self, x: Tensor) -> Moments:
        """Those of the last function, at what the others give."""
        for function in self.functions[:-1]:
            x = function(x)
        return moments(self.functions[-1], x)


@dataclass(frozen=True)
class ResidualFunction(Composite):
    """x + f(x)."""

    branch: Function

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        """Evaluate the branch and add the input."""
        return x + call(self.branch, x)

    def moments(self, x: Tensor) -> Moments:
        """Those of the branch, with the input added to the mean."""
        mean, variance = moments(self.branch, x)
        return Moments(x + mean, variance)


@dataclass(frozen=True)
class BranchesFunction(Composite):
    """Functions of the same input, whose outputs become one."""

    functions: Sequence[Function]

    @staticmethod
    @abstractmethod
    def joined(outputs: Sequence[Tensor]) -> Tensor:
        """What becomes of the outputs `[..., N, O_k]`, and of their variances."""

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        """Evaluate all of them at the same points."""
        return self.joined([call(function, x) for function in self.functions])

    def moments(self, x: Tensor) -> Moments:
        """Of independent functions: what becomes of means and of variances."""
        parts = [moments(function, x) for function in self.functions]
        mean = self.joined([part.mean for part in parts])
        if all(part.variance is None for part in parts):
            return Moments(mean)
        known = [p.mean.new_zeros(p.mean.shape) if p.variance is None else p.variance for p in parts]
        return Moments(mean, self.joined(known))


@dataclass(frozen=True)
class SumFunction(BranchesFunction):
    """f_1(x) + f_2(x) + ..."""

    @staticmethod
    def joined(outputs: Sequence[Tensor]) -> Tensor:
        """Their sum."""
        return total(outputs)


@dataclass(frozen=True)
class ConcatFunction(BranchesFunction):
    """(f_1(x), f_2(x), ...)."""

    @staticmethod
    def joined(outputs: Sequence[Tensor]) -> Tensor:
        """The outputs next to each other; leading axes are broadcast."""
        lead = torch.broadcast_shapes(*(output.shape[:-1] for output in outputs))
        return torch.cat([output.expand(*lead, output.shape[-1]) for output in outputs], -1)


class Evaluated(NamedTuple):
    """One layer's part in an evaluation: its function, what went in, what came out."""

    function: Function
    input: Tensor
    output: Tensor


class Recording(NamedTuple):
    """An evaluation and its steps.

    Attributes:
        output: of the whole function.
        steps: one for every layer inside, in the order of evaluation.
    """

    output: Tensor
    steps: tuple[Evaluated, ...]

    @property
    def outputs(self) -> list[Tensor]:
        """Those of all steps."""
        return [step.output for step in self.steps]


def record(function: Function, x: Tensor) -> Recording:
    """Evaluate a function, and note the function, input and output of every layer inside it, in one pass.

    Inputs and outputs are those of the evaluation itself: gradients with respect to them are gradients with
    respect to what the layers saw and gave.

    Args:
        function: any function; the parts of compositions, residual blocks and sums are taken apart.
        x: `[..., N, D]`.

    >>> import torch
    >>> output, steps = record(Composition((torch.sin, ResidualFunction(torch.cos))), torch.zeros(2, 1))
    >>> [step.function.__name__ for step in steps], output.tolist()
    (['sin', 'cos'], [[1.0], [1.0]])
    """
    steps: list[Evaluated] = []

    def call(part: Function, value: Tensor) -> Tensor:
        if isinstance(part, Composite):
            return part.evaluate(value, call)
        output = part(value)
        steps.append(Evaluated(part, value, output))
        return output

    return Recording(call(function, x), tuple(steps))


def total(values: Iterable[Tensor]) -> Tensor:
    """The sum of one or more tensors."""
    return reduce(operator.add, values)


def total_log_pq(parts: Iterable[Drawn], noise: Tensor) -> Tensor | None:
    """The sum of the parts' log_pq, `[S, R]` as of `noise` `[S, R, P]`; None if one has no density."""
    values = [part.log_pq for part in parts]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return total([noise.new_zeros(noise.shape[:-1]), *known])
