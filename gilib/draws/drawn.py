"""What a layer draws: a function, and how probable it is under the prior against the posterior."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from gilib.arithmetic import exact_products
from gilib.draws.functions import Function, Moments, moments, total
from gilib.randomness import Noise
from gilib.validation import as_inputs


@dataclass(frozen=True)
class Drawn(ABC):
    """S functions from a posterior over functions: a `Draw` or an `Estimate`.

    It unpacks into `function, log_pq = layer.draw(u)`. Its own methods compute exactly on a GPU
    (`gilib.arithmetic.exact_products`); the bare function, and gradients outside of `gilib.fit`, as torch is
    set.

    Attributes:
        function: maps inputs `[N, D]`, or `[R, N, D]`, to outputs `[S, R, N, O]`; inputs `[S, R, N, D]` are
            each sample's own.
        log_pq: log P - log Q of everything that was drawn, minus the Kullback-Leibler divergence of what was
            integrated out, `[S, R]`, nats; None: what was drawn has no density.
        carried: the inducing outputs, or a function that returns them; None if they are not known.
        input_axes: number of axes of an input point, if a network drew this.
    """

    function: Function
    log_pq: Tensor | None
    carried: Tensor | Callable[[], Tensor | None] | None = None
    input_axes: int | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the functions at `x`."""
        x = as_inputs(x, "x", self.log_pq)
        with exact_products():
            return self.function(x)

    def moments(self, x: Tensor) -> Moments:
        """Return mean and variance at `x` if the last sampling is Gaussian and independent over outputs.

        Otherwise return a sample. A likelihood can integrate over the Gaussian in closed form.
        """
        return self._asked(x, "moments")

    def marginals(self, x: Tensor) -> Moments:
        """Return mean and variance of every output by itself, even if outputs depend on each other.

        This serves a likelihood whose expectation is a sum over single outputs.
        """
        return self._asked(x, "marginals")

    def covariances(self, x: Tensor) -> Moments:
        """Like `moments`, but return covariances between the points, `[S, R, N, N, O]`, not variances."""
        return self._asked(x, "covariances")

    def _asked(self, x: Tensor, kind: str) -> Moments:
        x = as_inputs(x, "x", self.log_pq)
        with exact_products():
            return moments(self.function, x, kind)

    def __iter__(self) -> Iterator[Function | Tensor | None]:
        yield self.function
        yield self.log_pq

    @property
    def density(self) -> Tensor:
        """The log_pq that a bound needs; raises TypeError if there is none."""
        if self.log_pq is None:
            raise TypeError(
                "these functions have no density Q (chains, an ensemble): they predict, but bound no evidence"
            )
        return self.log_pq

    @property
    def inducing_outputs(self) -> Tensor | None:
        """The inducing points after they have passed through, `[S, R, M, ...]`, or None."""
        if self.carried is None or isinstance(self.carried, Tensor):
            return self.carried
        with exact_products():
            return self.carried()

    def carry(self, inducing: Tensor) -> Tensor:
        """Return the inducing points from which this was drawn after they have passed through."""
        outputs = self.inducing_outputs
        return self.function(inducing) if outputs is None else outputs


@dataclass(frozen=True)
class Draw(Drawn):
    """S functions drawn from a posterior; all evaluations, at any points, are of the same functions."""


@dataclass(frozen=True)
class JointDraw(Draw):
    """An exact draw, for one evaluation at N points together; the noise of the points is part of it."""


@dataclass(frozen=True)
class Estimate(Drawn):
    """S samples for training: layers integrate over what they can, and sample the rest at each of N points.

    So gradients have less variance (local reparameterisation; Kingma, Salimans & Welling, 2015). Points are
    independent given what was drawn once, as the sum over points in the ELBO allows. They do not share a
    function, so `predict` and `iwbo` refuse an estimate. The noise of the N points is part of the value, so
    two evaluations there are equal.
    """


AnyDrawn = TypeVar("AnyDrawn", bound=Drawn)
"""Draw, Estimate or JointDraw: the mode of `Layer.sample`."""


def total_log_pq(parts: Iterable[Drawn], noise: Noise) -> Tensor | None:
    """Return the sum of the parts' log_pq, `[S, R]` as of `noise`; None if one has no density."""
    values = [part.log_pq for part in parts]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return total([noise.zeros, *known])
