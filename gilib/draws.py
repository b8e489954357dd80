"""What a layer draws: a function, and how probable it is under the prior against the posterior."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from torch import Tensor

from gilib.arithmetic import exact_products

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Draw:
    """S functions drawn from a posterior over functions.

    A draw is a value: evaluating it twice, at all points or in batches, evaluates the same functions.

    Attributes:
        function: maps inputs `[..., N, D]` to outputs `[S, R, ..., N, O]`.
        log_pq: log P - log Q of everything that was drawn, `[S, R]`, nats, summed.

    A draw unpacks into these two: `function, log_pq = layer.draw(u)`.
    """

    function: Function
    log_pq: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the drawn functions at `x`."""
        with exact_products():
            return self.function(x)

    def __iter__(self) -> Iterator[Function | Tensor]:
        """Unpack into function and log_pq."""
        yield self.function
        yield self.log_pq


class CompositeDraw(Draw):
    """A draw of several layers that still has the inducing points, part of the way through itself.

    Attributes:
        finish: takes them the rest of the way; None: there were none.
    """

    def __init__(self, function: Function, log_pq: Tensor, finish: Callable[[], Tensor] | None = None):
        """Hold all three."""
        super().__init__(function, log_pq)
        self.finish = finish


def after(drawn: Draw, inducing: Tensor) -> Tensor:
    """What a draw makes of the inducing points from which it was drawn; no layer sees them twice."""
    finish = drawn.finish if isinstance(drawn, CompositeDraw) else None
    return drawn(inducing) if finish is None else finish()


@dataclass(frozen=True)
class LocalReparameterisation:
    """A training estimator, not a draw: every evaluation samples each layer's outputs anew, point by point.

    For factorised Gaussian weights the outputs at one point are Gaussian; sampling them in place of the
    weights lowers the variance of the gradient (Kingma, Salimans & Welling, 2015). Two points do not share a
    function, so `predict` and `iwbo` refuse it.

    Attributes:
        function: maps `[..., N, D]` to freshly sampled `[S, R, ..., N, O]`.
        log_pq: minus the closed-form KL(Q‖P) of the weights, plus log P - log Q of drawn prior scales, `[S,
            R]`.
    """

    function: Function
    log_pq: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Sample the outputs at `x`."""
        with exact_products():
            return self.function(x)


def total(values: Iterable[Tensor]) -> Tensor:
    """The sum of one or more tensors."""
    return reduce(operator.add, values)


@dataclass(frozen=True)
class ResidualFunction:
    """x + f(x)."""

    branch: Composition

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the branch and add the input."""
        return x + self.branch(x)


@dataclass(frozen=True)
class SumFunction:
    """f_1(x) + f_2(x) + ..."""

    functions: Sequence[Function]

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate all and add."""
        return total(function(x) for function in self.functions)


@dataclass(frozen=True)
class Composition:
    """Functions applied one after the other."""

    functions: Sequence[Function]

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate all of them."""
        for function in self.functions:
            x = function(x)
        return x

    def activations(self, x: Tensor) -> list[Tensor]:
        """The output of every function on the way, the last one included."""
        outputs = []
        for function in self.functions:
            x = function(x)
            outputs.append(x)
        return outputs


def weight_outputs(function: Function, x: Tensor) -> list[Tensor]:
    """What every weight layer inside a function gives at x, in order."""
    if isinstance(function, ResidualFunction):
        return weight_outputs(function.branch, x)
    if isinstance(function, Composition):
        found = []
        for part in function.functions:
            found += weight_outputs(part, x)
            x = part(x)
        return found
    if isinstance(function, SumFunction):
        return [values for part in function.functions for values in weight_outputs(part, x)]
    return [function(x)] if hasattr(function, "weights") else []
