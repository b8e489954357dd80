"""Student's t: a likelihood that outliers hardly affect, and the distribution function, which torch lacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import torch
from torch import Tensor, distributions, nn

from gilib.arguments import Scale
from gilib.config import ConfigDict
from gilib.likelihoods.base import Likelihood, as_row
from gilib.likelihoods.quantiles import SymmetricDistribution
from gilib.validation import as_replicas, check_scale

NODES, FAR = 64, 12.0  # nodes of the quadrature, and where it ends: beyond 12 deviations a normal tail is 0
TERMS, MANY = 56, 50.0  # terms of a tail's series; arguments of log Γ from which its series is used


def _check_df(value: Any, name: str) -> None:
    """Raise ValueError unless Student's t with these degrees of freedom has a variance."""
    check_scale(value, name)
    if value <= 2.0:
        raise ValueError(f"{name} must be above 2, so that targets have a variance, got {value!r}")


class StudentT(Likelihood):
    """Student's t noise for targets with outliers, y_o ~ f_o + scale_o · t_ν, independent over outputs.

    Args:
        scale: scale of the noise in units of the targets, one number for all outputs or a list with one for
            each; its initial value if it is learned.
        df: ν, the degrees of freedom, above 2 so that targets have a variance; the initial value if learned.
        learn: whether scale and ν are learned, as point estimates.
        replicas: shape of the replica axes, if every replica has its own scale and ν.

    >>> likelihood = StudentT(0.2)
    >>> likelihood.log_prob(torch.zeros(3, 5, 1), torch.zeros(5, 1)).shape
    torch.Size([3, 5])
    """

    output_axes = 1

    def __init__(
        self,
        scale: Scale | Sequence[Scale] = 1.0,
        df: Annotated[float, _check_df] = 4.0,
        learn: bool = True,
        replicas: tuple[int, ...] = (),
    ):
        """Create parameters with equal values for all replicas."""
        super().__init__()
        self.scale, self.df, self.learn, self.replicas = as_row(scale), df, learn, as_replicas(replicas)
        start = torch.tensor(self.scale, dtype=torch.float64).log().expand(*self.replicas, -1)
        self.log_scale = nn.Parameter(start.clone(), requires_grad=learn)  # [R, O]
        self.log_excess = nn.Parameter(torch.full_like(start, math.log(df - 2.0)), requires_grad=learn)

    def distribution(self, outputs: Tensor) -> distributions.StudentT:
        """Return Student's t distributions around the outputs."""
        self.check_replicas(outputs)
        scale, excess = (each.exp().to(outputs)[..., None, :] for each in (self.log_scale, self.log_excess))
        return _StudentT(2.0 + excess, outputs, scale, validate_args=False)

    @classmethod
    def for_targets(cls, targets: Tensor, replicas: tuple[int, ...] = ()) -> Self:
        """Return noise whose scale is a fifth of the standard deviation of the targets."""
        sd = targets.double().flatten(0, -2).std(0)
        return cls((0.2 * sd.clamp_min(1e-6)).tolist(), replicas=replicas)

    def config(self) -> ConfigDict:
        """Return the settings; learned values are part of the state."""
        return {"scale": self.scale, "df": self.df, "learn": self.learn, "replicas": list(self.replicas)}


class _StudentT(distributions.StudentT):
    def cdf(self, value: Tensor) -> Tensor:
        return student_cdf((value - self.loc) / self.scale, self.df)


@dataclass(frozen=True)
class StandardStudent(SymmetricDistribution):
    """Student's t distribution with location 0 and scale 1.

    Attributes:
        df: ν, float64, broadcastable with the components of a mixture.
    """

    df: Tensor

    def cdf(self, values: Tensor) -> Tensor:
        """Return the distribution function at `values`."""
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


def student_cdf(values: Tensor, df: Tensor) -> Tensor:
    r"""Return the distribution function of Student's t at `values`, to 1e-13 for df of 1 and more.

    With t = √ν tan θ, the density of θ is C cos(θ)^(ν-1). For |t| ≤ √ν, Gauss-Legendre quadrature integrates
    it from 0 to |θ|, or to the angle beyond which it has vanished. For larger |t|, with c = cos θ, the tail
    has the series

        P(T > |t|) = C c^ν Σ_k \binom{2k}{k} (c/2)^{2k} / (ν + 2k),    c² < ½.

    Args:
        values: t, float64.
        df: ν, broadcastable with the values.
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
