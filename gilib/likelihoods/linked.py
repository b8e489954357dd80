"""Counts, positive numbers and proportions, whose mean follows the outputs by a link function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, distributions, nn
from torch.distributions import constraints

from gilib.arguments import Scale
from gilib.config import ConfigDict
from gilib.likelihoods.base import Likelihood, as_row
from gilib.likelihoods.quantiles import by_scipy
from gilib.validation import as_replicas

BETWEEN = constraints.interval(1e-30, 1.0 - 1e-7)  # excludes 0 and 1 in float32, too


class LinkedMean(Likelihood):
    """Base class of likelihoods whose mean follows the outputs by a link function g, a logarithm or a logit.

        g(E y_o) = g(mean_o) + f_o

    Args:
        mean: mean of the targets where f is 0, one number for all outputs or a list with one for each.
    """

    output_axes = 1
    offset: Tensor  # [O]

    def __init__(self, mean: Scale | Sequence[Scale] = 1.0):
        super().__init__()
        self.mean = as_row(mean)
        self.num_outputs = len(self.mean) if len(self.mean) > 1 else None
        self.register_buffer("offset", self.linked(torch.tensor(self.mean).double()), persistent=False)

    @staticmethod
    def linked(mean: Tensor) -> Tensor:
        """Return the link function of a mean, here the logarithm, so that means are positive."""
        return mean.log()

    def predictor(self, outputs: Tensor) -> Tensor:
        """Return the link function of the targets' mean, `[S, R, N, O]`."""
        self.check_outputs(outputs)
        return self.offset.to(outputs) + outputs

    def link(self, targets: Tensor) -> Tensor:
        """Return outputs whose mean is the targets, or counts plus a half."""
        return self.linked(targets + _half(self.support)) - self.offset.to(targets)

    @classmethod
    def for_targets(cls, targets: Tensor, replicas: tuple[int, ...] = ()) -> Self:
        """Return a likelihood with the mean of the targets."""
        every = targets.double().flatten(0, -2)
        return cls(((every.sum(0) + _half(cls.support)) / len(every)).tolist())


def _half(support: Any) -> float:
    """Return what is added to counts so that 0 has a logarithm."""
    return 0.5 if support.is_discrete else 0.0


class Precise(LinkedMean):
    """Base class for distributions with a mean and a precision.

    Args:
        mean: as for `LinkedMean`.
        precision: a positive number; the initial value if it is learned.
        learn: whether the precision is learned, as a point estimate, one for each of the means.
        replicas: shape of the replica axes, if every replica has its own precision.
    """

    def __init__(
        self,
        mean: Scale | Sequence[Scale] = 1.0,
        precision: Scale = 2.0,
        learn: bool = True,
        replicas: tuple[int, ...] = (),
    ):
        super().__init__(mean)
        self.start_precision, self.learn, self.replicas = precision, learn, as_replicas(replicas)
        start = torch.full((*self.replicas, len(self.mean)), precision, dtype=torch.float64).log()
        self.log_precision = nn.Parameter(start, requires_grad=learn)  # [R, O]

    def precision(self, outputs: Tensor) -> Tensor:
        """Return the precision as a tensor that broadcasts with outputs."""
        return self.log_precision.exp().to(outputs)[..., None, :]

    @classmethod
    def for_targets(cls, targets: Tensor, replicas: tuple[int, ...] = ()) -> Self:
        return cls(super().for_targets(targets).mean, replicas=replicas)

    def config(self) -> ConfigDict:
        return super().config() | {"precision": self.start_precision}


class Poisson(LinkedMean):
    """Counts whose variance equals their mean, y_o ~ Poisson(mean_o exp(f_o)).

    >>> Poisson(3.0).distribution(torch.zeros(1, 2, 1)).mean.flatten()
    tensor([3., 3.])
    """

    support, wanted = constraints.nonnegative_integer, "counts (0, 1, 2 and so on)"

    def distribution(self, outputs: Tensor) -> distributions.Poisson:
        return _Poisson(self.predictor(outputs).exp(), validate_args=False)


class NegativeBinomial(Precise):
    """Counts that vary more than Poisson counts: mean μ_o = mean_o exp(f_o), variance μ + μ² / precision.

    >>> round(NegativeBinomial(3.0, precision=9.0).distribution(torch.zeros(1, 1, 1)).variance.item(), 4)
    4.0
    """

    support, wanted = constraints.nonnegative_integer, "counts (0, 1, 2 and so on)"

    def distribution(self, outputs: Tensor) -> distributions.NegativeBinomial:
        count = self.precision(outputs)
        return _NegativeBinomial(count, logits=self.predictor(outputs) - count.log(), validate_args=False)


class Gamma(Precise):
    """Positive numbers with mean μ_o = mean_o exp(f_o) and variance μ² / precision.

    >>> round(Gamma(3.0, precision=9.0).distribution(torch.zeros(1, 1, 1)).variance.item(), 4)
    1.0
    """

    support, wanted = constraints.positive, "positive numbers"

    def distribution(self, outputs: Tensor) -> distributions.Gamma:
        shape = self.precision(outputs)
        return distributions.Gamma(shape, shape * (-self.predictor(outputs)).exp(), validate_args=False)


class Beta(Precise):
    """Proportions between 0 and 1 with mean μ_o and variance μ (1 - μ) / (1 + precision).

    >>> round(Beta(0.25, precision=2.0).distribution(torch.zeros(1, 1, 1)).variance.item(), 4)
    0.0625
    """

    support, wanted = BETWEEN, "proportions, above 0 and below 1"

    def __init__(
        self,
        mean: Scale | Sequence[Scale] = 0.5,
        precision: Scale = 2.0,
        learn: bool = True,
        replicas: tuple[int, ...] = (),
    ):
        if not all(value < 1.0 for value in as_row(mean)):
            raise ValueError(f"mean must be a proportion, above 0 and below 1, got {mean!r}")
        super().__init__(mean, precision, learn, replicas)

    @staticmethod
    def linked(mean: Tensor) -> Tensor:
        return mean.logit()

    def distribution(self, outputs: Tensor) -> distributions.Beta:
        logits, size = self.predictor(outputs), self.precision(outputs)
        return _Beta(size * logits.sigmoid(), size * (-logits).sigmoid(), validate_args=False)


class _Poisson(distributions.Poisson):
    def cdf(self, value: Tensor) -> Tensor:
        found = torch.special.gammaincc(value.clamp_min(0.0).floor() + 1.0, self.rate)
        return torch.where(value < 0.0, 0.0, found)


class _NegativeBinomial(distributions.NegativeBinomial):
    def cdf(self, value: Tensor) -> Tensor:
        success = torch.sigmoid(-self.logits)
        found = by_scipy("betainc", self.total_count, value.clamp_min(0.0).floor() + 1.0, success)
        return torch.where(value < 0.0, 0.0, found)


class _Beta(distributions.Beta):
    def cdf(self, value: Tensor) -> Tensor:
        return by_scipy("betainc", self.concentration1, self.concentration0, value)
