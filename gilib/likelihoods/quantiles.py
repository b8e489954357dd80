"""Quantiles of equal mixtures: of shifted and stretched laws, and of any.

A bracket is halved until the components are smooth in it; from there Newton's method goes on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

LOOKS = 60  # at the distribution function, at most: as many halvings exhaust float64
SMOOTH = 0.1  # scales of the components: a bracket within which Newton's method is fast
CLOSE = 1e-14  # a step of Newton's, of the largest number around, after which there is no other
ENDS = ("lower", "upper")  # of what a law supports, as torch names them
ROOT_2PI, ROOT_HALF = math.sqrt(2.0 * math.pi), math.sqrt(0.5)


class SymmetricLaw(ABC):
    """A standard law, symmetric around zero, which the components of a mixture shift and stretch."""

    @abstractmethod
    def cdf(self, values: Tensor) -> Tensor:
        """Its distribution function; small ones to their last digits."""

    @abstractmethod
    def density(self, values: Tensor) -> Tensor:
        """Its density."""

    @abstractmethod
    def bracket(self, probability: float) -> tuple[Tensor, Tensor]:
        """Two numbers, or tensors that go with the components, between which its quantile is."""


class StandardNormal(SymmetricLaw):
    """N(0, 1)."""

    def cdf(self, values: Tensor) -> Tensor:
        """By erfc, as ndtr has no digits in tails."""
        return 0.5 * torch.erfc(-ROOT_HALF * values)

    def density(self, values: Tensor) -> Tensor:
        """Its density."""
        return (-0.5 * values.square()).exp() / ROOT_2PI

    def bracket(self, probability: float) -> tuple[Tensor, Tensor]:
        """The quantile itself, twice."""
        found = torch.special.ndtri(torch.tensor(probability, dtype=torch.float64))
        return found, found


def check_probability(probability: object) -> None:
    """Raise unless a quantile can be asked for."""
    if not isinstance(probability, Real) or not 0.0 < float(probability) < 1.0:
        raise ValueError(f"a quantile needs a probability between 0 and 1, got {probability!r}")


def mixture_quantile(locations: Tensor, scales: Tensor, probability: float, law: SymmetricLaw) -> Tensor:
    """The quantile of an equal mixture over the first axis, in float64 within.

    Args:
        locations: m, `[S, ...]`.
        scales: of the components m + scale · z, broadcastable to them.
        probability: above 0 and below 1.
        law: of z.

    Raises:
        ValueError: for other probabilities.

    >>> found = mixture_quantile(torch.tensor([-1.0, 3.0]), torch.ones(2), 0.5, StandardNormal())
    >>> round(float(found), 6)
    1.0
    """
    check_probability(probability)
    own, scales = locations.double(), scales.double()
    if probability > 0.5:  # of two tails the lower one has small probabilities to its last digit
        return -_lower_quantile(-own, scales, 1.0 - probability, law).to(locations.dtype)
    return _lower_quantile(own, scales, float(probability), law).to(locations.dtype)


def _lower_quantile(locations: Tensor, scales: Tensor, probability: float, law: SymmetricLaw) -> Tensor:
    """The same for a probability of at most one half, in float64."""
    lowest, highest = (locations + scales * edge.to(scales.device) for edge in law.bracket(probability))
    return _found(
        lambda at: law.cdf((at - locations) / scales).mean(0) - probability,
        lambda at: (law.density((at - locations) / scales) / scales).mean(0),
        (lowest.amin(0), highest.amax(0)),
        smooth=SMOOTH * scales.amin(0),
        least=CLOSE * (lowest.abs().amax(0) + scales.amax(0)),
    )


def _found(
    excess_at: Callable[[Tensor], Tensor],
    density: Callable[[Tensor], Tensor],
    between: tuple[Tensor, Tensor],
    smooth: Tensor,
    least: Tensor,
) -> Tensor:
    """Where an excess is 0, to within `least`; within `smooth` Newton's method begins."""
    low, high = between
    at = 0.5 * (low + high)
    for _ in range(LOOKS):
        excess = excess_at(at)
        low, high = torch.where(excess < 0, at, low), torch.where(excess < 0, high, at)
        middle = 0.5 * (low + high)
        if bool((high - low > smooth).any()):
            at = middle
            continue
        step = excess / density(at)
        newton, small = at - step, step.abs() <= least
        at = torch.where(small | ((newton > low) & (newton < high)), newton, middle)
        if bool((small | (high - low <= least)).all()):
            break
    return at


def quantile_of_laws(law: Distribution, probability: float, axes: int = 1) -> Tensor:
    """The quantile of an equal mixture of any laws over the first axes, within their support.

    Args:
        law: univariate, batch shape `[S, ...]`, with `cdf`, a mean and a variance; in float64.
        probability: above 0 and below 1.
        axes: how many.

    Raises:
        ValueError: for other probabilities.

    >>> law = torch.distributions.Gamma(torch.tensor([2.0, 5.0], dtype=torch.float64), 1.0)
    >>> found = quantile_of_laws(law, 0.3)
    >>> round(float(law.cdf(found).mean()), 6)
    0.3
    """
    check_probability(probability)

    def mixed(values: Tensor) -> Tensor:
        return values.flatten(0, axes - 1).mean(0)

    def excess(at: Tensor) -> Tensor:
        return mixed(law.cdf(at)) - probability

    support: Any = law.support
    centre, width = mixed(law.mean), law.stddev.flatten(0, axes - 1)
    low, high = (torch.full_like(centre, getattr(support, f"{end}_bound", torch.nan)) for end in ENDS)
    low = low.where(low.isfinite(), _beyond(centre, -width.amax(0), lambda at: excess(at) > 0))
    high = high.where(high.isfinite(), _beyond(centre, width.amax(0), lambda at: excess(at) < 0))
    if support.is_discrete:
        return _whole(excess, low.floor() - 1.0, high.ceil())
    return _found(
        excess,
        lambda at: mixed(law.log_prob(at).exp()),
        (low, high),
        smooth=SMOOTH * width.amin(0),
        least=CLOSE * (low.abs() + high.abs()),
    )


def _beyond(centre: Tensor, step: Tensor, short: Callable[[Tensor], Tensor]) -> Tensor:
    """A number, by doubling a step from the centre until none is short of what is sought."""
    while bool((missing := short(centre + step) & step.isfinite()).any()):
        step = torch.where(missing, 2.0 * step, step)
    return centre + step


def _whole(excess: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """The least whole number where `excess` is not negative; at `low` it is."""
    while bool((high - low > 1.0).any()):
        middle = (0.5 * (low + high)).floor()
        below = excess(middle) < 0
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high
