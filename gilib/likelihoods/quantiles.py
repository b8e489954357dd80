"""Quantiles of equal mixtures, and distribution functions that torch lacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, StudentT

from gilib.optional import require_package

LOOKS = 60  # evaluations of the distribution function, at most: so many halvings exhaust float64
SMOOTH = 0.1  # width of a bracket, as a fraction of the smallest scale, below which Newton's method is fast
CLOSE = 1e-14  # a Newton step smaller than this fraction of the largest number is the last
ENDS = ("lower", "upper")  # the ends of a support, as torch names them
ROOT_2PI, ROOT_HALF = math.sqrt(2.0 * math.pi), math.sqrt(0.5)


class StandardNormal:
    """The standard normal distribution, N(0, 1), which the components of a mixture shift and scale."""

    def cdf(self, values: Tensor) -> Tensor:
        """Return the distribution function at `values`; torch's ndtr would lose its digits in the tails."""
        return 0.5 * torch.erfc(-ROOT_HALF * values)

    def density(self, values: Tensor) -> Tensor:
        """Return the density at `values`."""
        return (-0.5 * values.square()).exp() / ROOT_2PI

    def bracket(self, probability: float) -> tuple[Tensor, Tensor]:
        """Return two bounds of the quantile of `probability` that broadcast with the components."""
        found = torch.special.ndtri(torch.tensor(probability, dtype=torch.float64))
        return found, found


@dataclass(frozen=True)
class StandardStudent:
    """Student's t distribution, with the methods of `StandardNormal`; ν is float64 and broadcasts."""

    df: Tensor

    def cdf(self, values: Tensor) -> Tensor:
        """Return the distribution function at `values`, with full relative precision where it is small."""
        return by_scipy("stdtr", self.df, values)

    def density(self, values: Tensor) -> Tensor:
        """Return the density at `values`."""
        return StudentT(self.df, validate_args=False).log_prob(values).exp()

    def bracket(self, probability: float) -> tuple[Tensor, Tensor]:
        """Return bounds of the quantile of a probability ≤ ½, which lies below the normal quantile."""
        high = torch.special.ndtri(torch.full_like(self.df, probability))
        low = high - 1.0
        while bool((self.cdf(low) > probability).any()):
            low = 2.0 * low
        return low, high


Standard = StandardNormal | StandardStudent  # both are symmetric around zero


def check_probability(probability: object) -> None:
    """Raise ValueError unless `probability` is a number above 0 and below 1."""
    if not isinstance(probability, Real) or not 0.0 < float(probability) < 1.0:
        raise ValueError(f"a quantile needs one probability between 0 and 1, got {probability!r}")


def mixture_cdf(locations: Tensor, scales: Tensor, values: Tensor, standard: Standard) -> Tensor:
    """Return the distribution function at `values`; other arguments as for `mixture_quantile`."""
    standardised = (values.double() - locations.double()) / scales.double()
    return standard.cdf(standardised).mean(0).to(locations.dtype)


def mixture_quantile(locations: Tensor, scales: Tensor, probability: float, standard: Standard) -> Tensor:
    """Return the quantile of an equal mixture over the first axis; the arithmetic is in float64.

    The components are location + scale · z, both `[S, ...]`; `standard` is the law of z.

    >>> found = mixture_quantile(torch.tensor([-1.0, 3.0]), torch.ones(2), 0.5, StandardNormal())
    >>> round(float(found), 6)
    1.0
    """
    check_probability(probability)
    own, scales = locations.double(), scales.double()
    if probability > 0.5:  # only in the lower tail are small probabilities precise
        return -_lower_quantile(-own, scales, 1.0 - probability, standard).to(locations.dtype)
    return _lower_quantile(own, scales, float(probability), standard).to(locations.dtype)


def _lower_quantile(locations: Tensor, scales: Tensor, probability: float, standard: Standard) -> Tensor:
    """Return the quantile of a probability of at most one half, in float64."""
    lowest, highest = (locations + scales * edge.to(scales.device) for edge in standard.bracket(probability))
    return _found(
        lambda at: standard.cdf((at - locations) / scales).mean(0) - probability,
        lambda at: (standard.density((at - locations) / scales) / scales).mean(0),
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
    """Return the root of `excess_at`, to the accuracy `least`: bisect to the width `smooth`, then Newton."""
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


def check_defined(distribution: Distribution, *names: str) -> None:
    """Raise NotImplementedError if the distribution lacks a method or property that predictions need."""
    distribution = getattr(distribution, "component_distribution", distribution)  # of a mixture
    for name in names:
        if getattr(type(distribution), name) is getattr(Distribution, name):
            raise NotImplementedError(f"predictions need {type(distribution).__name__} to define `{name}`")


def quantile_of_components(components: Distribution, probability: float, axes: int = 1) -> Tensor:
    """Return the quantile of an equal mixture over the first `axes` axes of any distributions.

    The components are univariate, in float64, with `cdf`, mean and variance.
    """
    check_probability(probability)
    check_defined(components, "cdf")

    def mixed(values: Tensor) -> Tensor:
        return values.flatten(0, axes - 1).mean(0)

    def excess(at: Tensor) -> Tensor:
        return mixed(components.cdf(at)) - probability

    support: Any = components.support
    centre, width = mixed(components.mean), components.stddev.flatten(0, axes - 1)
    low, high = (torch.full_like(centre, getattr(support, f"{end}_bound", torch.nan)) for end in ENDS)
    low = low.where(low.isfinite(), _beyond(centre, -width.amax(0), lambda at: excess(at) > 0))
    high = high.where(high.isfinite(), _beyond(centre, width.amax(0), lambda at: excess(at) < 0))
    if support.is_discrete:
        return _whole(excess, low.floor() - 1.0, high.ceil())
    return _found(
        excess,
        lambda at: mixed(components.log_prob(at).exp()),
        (low, high),
        smooth=SMOOTH * width.amin(0),
        least=CLOSE * (low.abs() + high.abs()),
    )


def _beyond(centre: Tensor, step: Tensor, short: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a bound of the quantile: double the distance from `centre` until `short` is nowhere True."""
    while bool((missing := short(centre + step) & step.isfinite()).any()):
        step = torch.where(missing, 2.0 * step, step)
    return centre + step


def _whole(excess: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Return the smallest whole number where `excess` is not negative, given that it is negative at `low`."""
    while bool((high - low > 1.0).any()):
        middle = (0.5 * (low + high)).floor()
        below = excess(middle) < 0
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def by_scipy(name: str, *arguments: Tensor) -> Tensor:
    """Return a function of `scipy.special` that torch lacks, without gradients, like its last argument."""
    special = require_package("scipy.special", "scipy", "compute quantiles of this likelihood")
    found = getattr(special, name)(*(each.detach().cpu().double().numpy() for each in arguments))
    return torch.as_tensor(found).to(arguments[-1])
