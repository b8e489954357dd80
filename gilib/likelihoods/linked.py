"""Counts, positive numbers and shares: laws whose mean follows the outputs by a link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, distributions, nn
from torch.distributions import constraints

from gilib.arguments import Scale
from gilib.config import ConfigDict
from gilib.likelihoods.base import Likelihood, as_row
from gilib.optional import require_package
from gilib.validation import as_replicas

BETWEEN = constraints.interval(1e-30, 1.0 - 1e-7)  # in float32, too, neither 0 nor 1


class LinkedMean(Likelihood):
    """Targets whose mean follows the outputs: g(E y_o) = g(mean_o) + f_o, g being a logarithm or a logit.

    Args:
        mean: of targets where f is 0, one for all outputs or one for each, in their units: that of the
            training data, say.
    """

    output_axes = 1
    offset: Tensor  # [O]

    def __init__(self, mean: Scale | Sequence[Scale] = 1.0):
        """Keep the mean."""
        super().__init__()
        self.mean = as_row(mean)
        self.register_buffer("offset", self.linked(torch.tensor(self.mean).double()), persistent=False)

    @staticmethod
    def linked(mean: Tensor) -> Tensor:
        """The logarithm, so that means are positive."""
        return mean.log()

    def predictor(self, outputs: Tensor) -> Tensor:
        """G of the mean, `[S, R, N, O]`.

        Raises:
            ValueError: if the likelihood is for another number of outputs, or of replicas.
        """
        self.check_replicas(outputs)
        if len(self.mean) not in (1, outputs.shape[-1]):
            raise ValueError(
                f"{type(self).__name__} has means of {len(self.mean)} outputs, the network has "
                f"{outputs.shape[-1]} outputs"
            )
        return self.offset.to(outputs) + outputs

    def link(self, targets: Tensor) -> Tensor:
        """G of the targets, counts raised by a half, less that of the mean."""
        return self.linked(targets + _half(self.support)) - self.offset.to(targets)

    @classmethod
    def for_targets(cls, targets: Tensor, replicas: tuple[int, ...] = ()) -> Self:
        """With the mean of the targets."""
        every = targets.double().flatten(0, -2)
        return cls(((every.sum(0) + _half(cls.support)) / len(every)).tolist())

    def config(self) -> ConfigDict:
        """Settings; what is learned is part of the state."""
        return {"mean": self.mean}


def _half(support: Any) -> float:
    """What is added to counts so that 0 has a logarithm."""
    return 0.5 if support.is_discrete else 0.0


class Precise(LinkedMean):
    """Those that beside their mean have a precision: the larger it is, the smaller is the variance.

    Args:
        mean: of targets where f is 0, one for all outputs or one for each.
        precision: positive; where it starts if learned.
        learn: whether it is learned, as a point estimate, for each of the means.
        replicas: shape of the replica axes, if every replica has its own.
    """

    def __init__(
        self,
        mean: Scale | Sequence[Scale] = 1.0,
        precision: Scale = 2.0,
        learn: bool = True,
        replicas: tuple[int, ...] = (),
    ):
        """Start from one precision."""
        super().__init__(mean)
        self.start_precision, self.learn, self.replicas = precision, learn, as_replicas(replicas)
        start = torch.full((*self.replicas, len(self.mean)), precision, dtype=torch.float64).log()
        self.log_precision = nn.Parameter(start, requires_grad=learn)  # [R, O]

    def precision(self, outputs: Tensor) -> Tensor:
        """As a tensor that goes with outputs."""
        return self.log_precision.exp().to(outputs)[..., None, :]

    @classmethod
    def for_targets(cls, targets: Tensor, replicas: tuple[int, ...] = ()) -> Self:
        """With the mean of the targets."""
        return cls(super().for_targets(targets).mean, replicas=replicas)

    def config(self) -> ConfigDict:
        """Settings; what is learned is part of the state."""
        own = {"precision": self.start_precision, "learn": self.learn, "replicas": list(self.replicas)}
        return super().config() | own


class Poisson(LinkedMean):
    """y_o ~ Poisson(mean_o exp(f_o)): counts whose variance is their mean.

    >>> Poisson(3.0).distribution(torch.zeros(1, 2, 1)).mean.flatten()
    tensor([3., 3.])
    """

    support, wanted = constraints.nonnegative_integer, "counts (0, 1, 2 and so on)"

    def distribution(self, outputs: Tensor) -> distributions.Poisson:
        """Counts at this rate."""
        return _Poisson(self.predictor(outputs).exp(), validate_args=False)


class NegativeBinomial(Precise):
    """Counts that scatter more: with mean μ_o = mean_o exp(f_o), a variance of μ + μ² / precision.

    >>> round(NegativeBinomial(3.0, precision=9.0).distribution(torch.zeros(1, 1, 1)).variance.item(), 4)
    4.0
    """

    support, wanted = constraints.nonnegative_integer, "counts (0, 1, 2 and so on)"

    def distribution(self, outputs: Tensor) -> distributions.NegativeBinomial:
        """Counts of failures before so many successes."""
        count = self.precision(outputs)
        return _NegativeBinomial(count, logits=self.predictor(outputs) - count.log(), validate_args=False)


class Gamma(Precise):
    """Positive numbers: with mean μ_o = mean_o exp(f_o), a variance of μ² / precision.

    >>> round(Gamma(3.0, precision=9.0).distribution(torch.zeros(1, 1, 1)).variance.item(), 4)
    1.0
    """

    support, wanted = constraints.positive, "positive numbers"

    def distribution(self, outputs: Tensor) -> distributions.Gamma:
        """Of this shape, and mean."""
        shape = self.precision(outputs)
        return distributions.Gamma(shape, shape * (-self.predictor(outputs)).exp(), validate_args=False)


class Beta(Precise):
    """Shares between 0 and 1: with a mean of μ_o, a variance of μ (1 - μ) / (1 + precision).

    >>> round(Beta(0.25, precision=2.0).distribution(torch.zeros(1, 1, 1)).variance.item(), 4)
    0.0625
    """

    support, wanted = BETWEEN, "shares, above 0 and below 1"

    def __init__(
        self,
        mean: Scale | Sequence[Scale] = 0.5,
        precision: Scale = 2.0,
        learn: bool = True,
        replicas: tuple[int, ...] = (),
    ):
        """Start from one precision."""
        if not all(value < 1.0 for value in as_row(mean)):
            raise ValueError(f"mean must be a share, above 0 and below 1, got {mean!r}")
        super().__init__(mean, precision, learn, replicas)

    @staticmethod
    def linked(mean: Tensor) -> Tensor:
        """The logit, so that means are shares."""
        return mean.logit()

    def distribution(self, outputs: Tensor) -> distributions.Beta:
        """Shares around the mean."""
        logits, size = self.predictor(outputs), self.precision(outputs)
        return _Beta(size * logits.sigmoid(), size * (-logits).sigmoid(), validate_args=False)


class _Poisson(distributions.Poisson):
    def cdf(self, value: Tensor) -> Tensor:
        found = torch.special.gammaincc(value.clamp_min(0.0).floor() + 1.0, self.rate)
        return torch.where(value < 0.0, 0.0, found)


class _NegativeBinomial(distributions.NegativeBinomial):
    def cdf(self, value: Tensor) -> Tensor:
        success = torch.sigmoid(-self.logits)
        found = _betainc(self.total_count, value.clamp_min(0.0).floor() + 1.0, success)
        return torch.where(value < 0.0, 0.0, found)


class _Beta(distributions.Beta):
    def cdf(self, value: Tensor) -> Tensor:
        return _betainc(self.concentration1, self.concentration0, value)


def _betainc(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The regularised incomplete beta function, which torch has not; without gradients."""
    special = require_package("scipy.special", "scipy", "compute quantiles of this likelihood")
    values = special.betainc(*(each.detach().cpu().double().numpy() for each in (a, b, x)))
    return torch.as_tensor(values).to(x)
