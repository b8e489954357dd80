"""Quantiles of equal mixtures of shifted and stretched laws.

A bracket is halved until the components are smooth in it; from there Newton's method goes on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from numbers import Real

import torch
from torch import Tensor

LOOKS = 60  # at the distribution function, at most: as many halvings exhaust float64
SMOOTH = 0.1  # scales of the components: a bracket within which Newton's method is fast
CLOSE = 1e-14  # a step of Newton's, of the largest number around, after which there is no other
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
    if not isinstance(probability, Real) or not 0.0 < probability < 1.0:
        raise ValueError(f"a quantile needs a probability between 0 and 1, got {probability!r}")
    own, scales = locations.double(), scales.double()
    if probability > 0.5:  # of two tails the lower one has small probabilities to its last digit
        return -_lower_quantile(-own, scales, 1.0 - probability, law).to(locations.dtype)
    return _lower_quantile(own, scales, float(probability), law).to(locations.dtype)


def _lower_quantile(locations: Tensor, scales: Tensor, probability: float, law: SymmetricLaw) -> Tensor:
    """The same for a probability of at most one half, in float64."""
    lowest, highest = (locations + scales * edge.to(scales.device) for edge in law.bracket(probability))
    low, high = lowest.amin(0), highest.amax(0)
    smooth, least = SMOOTH * scales.amin(0), CLOSE * (lowest.abs().amax(0) + scales.amax(0))
    at = 0.5 * (low + high)
    for _ in range(LOOKS):
        values = (at - locations) / scales
        excess = law.cdf(values).mean(0) - probability
        low, high = torch.where(excess < 0, at, low), torch.where(excess < 0, high, at)
        middle = 0.5 * (low + high)
        if bool((high - low > smooth).any()):
            at = middle
            continue
        step = excess / (law.density(values) / scales).mean(0)
        newton, small = at - step, step.abs() <= least
        at = torch.where(small | ((newton > low) & (newton < high)), newton, middle)
        if bool((small | (high - low <= least)).all()):
            break
    return at
