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

    Attributes:
        function: maps inputs `[N, D]`, or `[R, N, D]`, to outputs `[S, R, N, O]`. Axes in front of N are
            matched with `[S, R]` as torch broadcasts: inputs `[S, R, N, D]` are every sample's own, as layers
            have it of those below.
        log_pq: log P - log Q of everything that was drawn, less the Kullback-Leibler divergence of what was
            integrated out, `[S, R]`, nats, summed; None: what was drawn has no density.
        carried: the inducing outputs, or a function that gives them; None: there were no inducing points, or
            the function has to be asked.
        input_axes: how many axes an input point has, if a network drew this.

    It unpacks into the first two: `function, log_pq = layer.draw(u)`. What it evaluates itself, a call of it,
    `moments` and `marginals`, is exact on a GPU (`gilib.arithmetic.exact_products`); the bare function, and
    gradients that are taken outside of `gilib.fit`, are computed as torch is set.
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
        """Evaluate at `x`, and leave the last sampling undone if it is Gaussian, independent over outputs.

        Deep Gaussian processes end so: the likelihood can integrate over it in closed form.
        """
        return self._asked(x, "moments")

    def marginals(self, x: Tensor) -> Moments:
        """The same, but of every output by itself: outputs that depend on each other are left undone, too.

        For a likelihood whose expectation is a sum over single outputs.
        """
        return self._asked(x, "marginals")

    def covariances(self, x: Tensor) -> Moments:
        """As `moments`, with the covariances between the points, `[S, R, N, N, O]`, in place of variances."""
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
        """log_pq, where a bound needs it.

        Raises:
            TypeError: if what was drawn has none.
        """
        if self.log_pq is None:
            raise TypeError(
                "these functions have no density Q (chains, an ensemble): they predict, but bound no evidence"
            )
        return self.log_pq

    @property
    def inducing_outputs(self) -> Tensor | None:
        """What became of the inducing points, `[S, R, M, ...]`, or None; computed when it is asked for."""
        if self.carried is None or isinstance(self.carried, Tensor):
            return self.carried
        with exact_products():
            return self.carried()

    def carry(self, inducing: Tensor) -> Tensor:
        """What became of the inducing points from which this was drawn."""
        outputs = self.inducing_outputs
        return self.function(inducing) if outputs is None else outputs


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
    In a convolution every image gets a kernel of its own (flipout; Wen et al., 2018). Points are independent
    given what was drawn once, as the sum over points in the ELBO allows. They do not share a function, so
    `predict` and `iwbo` refuse an estimate. The noise of the points is part of the value: it was made for N
    points, and evaluating it twice there gives the same outputs.
    """


AnyDrawn = TypeVar("AnyDrawn", bound=Drawn)
"""Draw, Estimate or JointDraw: the mode of `Layer.sample`."""


def total_log_pq(parts: Iterable[Drawn], noise: Noise) -> Tensor | None:
    """The sum of the parts' log_pq, `[S, R]` as of `noise`; None if one has no density."""
    values = [part.log_pq for part in parts]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return total([noise.zeros, *known])
