"""Quantiles of equal mixtures, and Student's distribution function, which torch lacks.

`mixture_quantile` is for components that shift and scale one symmetric distribution, `quantile_of_components`
for components of any kind. Both find where the distribution function of the mixture reaches the probability.
They halve a bracket until all components are smooth across it, and then use Newton's method.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

LOOKS = 60  # evaluations of the distribution function, at most: so many halvings exhaust float64
SMOOTH = 0.1  # width of a bracket, as a fraction of the smallest scale, below which Newton's method is fast
CLOSE = 1e-14  # a Newton step smaller than this fraction of the largest number is the last
ENDS = ("lower", "upper")  # the ends of a support, as torch names them
NODES, FAR = 64, 12.0  # nodes of Student's quadrature; its end: beyond 12 deviations a normal tail is 0
TERMS, MANY = 56, 50.0  # terms of a tail's series; arguments of log Γ from which its series is used
ROOT_2PI, ROOT_HALF = math.sqrt(2.0 * math.pi), math.sqrt(0.5)


class SymmetricDistribution(ABC):
    """A standard distribution, symmetric around zero, which the components of a mixture shift and scale."""

    @abstractmethod
    def cdf(self, values: Tensor) -> Tensor:
        """Return the distribution function at `values`, with full relative precision where it is small."""

    @abstractmethod
    def density(self, values: Tensor) -> Tensor:
        """Return the density at `values`."""

    @abstractmethod
    def bracket(self, probability: float) -> tuple[Tensor, Tensor]:
        """Return two bounds of the quantile of `probability`; they broadcast with the components."""


class StandardNormal(SymmetricDistribution):
    """The standard normal distribution, N(0, 1)."""

    def cdf(self, values: Tensor) -> Tensor:
        """Return the distribution function at `values`; torch's ndtr would lose its digits in the tails."""
        return 0.5 * torch.erfc(-ROOT_HALF * values)

    def density(self, values: Tensor) -> Tensor:
        return (-0.5 * values.square()).exp() / ROOT_2PI

    def bracket(self, probability: float) -> tuple[Tensor, Tensor]:
        """Return the exact quantile as both bounds."""
        found = torch.special.ndtri(torch.tensor(probability, dtype=torch.float64))
        return found, found


@dataclass(frozen=True)
class StandardStudent(SymmetricDistribution):
    """Student's t distribution; ν is float64 and broadcasts with the components of a mixture."""

    df: Tensor

    def cdf(self, values: Tensor) -> Tensor:
        return student_cdf(values, self.df)

    def density(self, values: Tensor) -> Tensor:
        """Return the density C / √ν · (1 + t² / ν)^(-(ν+1)/2) at `values`."""
        log_constant = _log_constant(self.df) - 0.5 * self.df.log()
        return (log_constant - 0.5 * (self.df + 1.0) * torch.log1p(values.square() / self.df)).exp()

    def bracket(self, probability: float) -> tuple[Tensor, Tensor]:
        """Return bounds of the quantile of a probability ≤ ½, which lies below the normal quantile.

        The lower bound is doubled until it is low enough.
        """
        high = torch.special.ndtri(torch.full_like(self.df, probability))
        low = high - 1.0
        while bool((self.cdf(low) > probability).any()):
            low = 2.0 * low
        return low, high


def check_probability(probability: object) -> None:
    """Raise ValueError unless `probability` is a number above 0 and below 1."""
    if not isinstance(probability, Real) or not 0.0 < float(probability) < 1.0:
        raise ValueError(f"a quantile needs a probability between 0 and 1, got {probability!r}")


def mixture_cdf(locations: Tensor, scales: Tensor, values: Tensor, standard: SymmetricDistribution) -> Tensor:
    """Return the distribution function at `values`; other arguments as for `mixture_quantile`."""
    standardised = (values.double() - locations.double()) / scales.double()
    return standard.cdf(standardised).mean(0).to(locations.dtype)


def mixture_quantile(
    locations: Tensor, scales: Tensor, probability: float, standard: SymmetricDistribution
) -> Tensor:
    """Return the quantile of an equal mixture over the first axis; the arithmetic is in float64.

    The components are m + scale · z, with locations m and scales `[S, ...]`; `standard` is the law of z.

    >>> found = mixture_quantile(torch.tensor([-1.0, 3.0]), torch.ones(2), 0.5, StandardNormal())
    >>> round(float(found), 6)
    1.0
    """
    check_probability(probability)
    own, scales = locations.double(), scales.double()
    if probability > 0.5:  # only in the lower tail are small probabilities precise
        return -_lower_quantile(-own, scales, 1.0 - probability, standard).to(locations.dtype)
    return _lower_quantile(own, scales, float(probability), standard).to(locations.dtype)


def _lower_quantile(
    locations: Tensor, scales: Tensor, probability: float, standard: SymmetricDistribution
) -> Tensor:
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


def quantile_of_components(components: Distribution, probability: float, axes: int = 1) -> Tensor:
    """Return the quantile of an equal mixture of any distributions over the first axes, within their support.

    The components are univariate, in float64, with `cdf`, mean and variance; the first `axes` axes are mixed.
    """
    check_probability(probability)

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


def student_cdf(values: Tensor, df: Tensor) -> Tensor:
    r"""Return the distribution function of Student's t at `values`, to 1e-13 for df of 1 and more.

    With t = √ν tan θ, the density of θ is C cos(θ)^(ν-1). For |t| ≤ √ν, Gauss-Legendre quadrature integrates
    it from 0 to |θ|, or to the angle beyond which it has vanished. For larger |t|, with c = cos θ, the tail
    has the series

        P(T > |t|) = C c^ν Σ_k \binom{2k}{k} (c/2)^{2k} / (ν + 2k),    c² < ½.
    """
    log_constant, angle = _log_constant(df), torch.atan(values.abs() / df.sqrt())
    end = angle.clamp_max(FAR / df.sqrt())
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    total = torch.zeros_like(end)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        sine = (0.5 * (node + 1.0) * end).sin()
        total = total + weight * (0.5 * (df - 1.0) * torch.log1p(-sine.square())).exp()
    half = (0.5 * end * total * log_constant.exp()).clamp_max(0.5)
    square, series, factor = df / (df + values.square()), torch.zeros_like(end), torch.ones_like(end)
    for k in range(TERMS):
        series = series + factor / (df + 2 * k)
        factor = factor * square * ((2 * k + 1) / (2 * k + 2))
    tail = (0.5 * df * square.log() + log_constant).exp() * series
    beyond = torch.where(values > 0.0, 1.0 - tail, tail)
    return torch.where(values.square() > df, beyond, 0.5 + values.sign() * half)


def _log_constant(df: Tensor) -> Tensor:
    """Return log C, where C is the constant in the density of θ."""
    return log_gamma_ratio(0.5 * df) - 0.5 * math.log(math.pi)


def log_gamma_ratio(x: Tensor) -> Tensor:
    """Return log Γ(x + ½) - log Γ(x), by its asymptotic series where the difference would cancel."""
    inverse = 1.0 / x
    series = 0.5 * x.log() - inverse / 8 + inverse**3 / 192 - inverse**5 / 640 + 17 * inverse**7 / 14336
    return torch.where(x < MANY, torch.lgamma(x + 0.5) - torch.lgamma(x), series)
