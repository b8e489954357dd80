"""Student's t noise, which outliers hardly affect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Self

import torch
from torch import Tensor, distributions, nn

from gilib.arguments import Scale
from gilib.likelihoods.base import Likelihood, as_row
from gilib.likelihoods.quantiles import by_scipy
from gilib.validation import as_replicas, check_scale


def _check_df(value: Any, name: str) -> None:
    check_scale(value, name)
    if value <= 2.0:
        raise ValueError(f"{name} must be above 2, so that targets have a variance, got {value!r}")


class StudentT(Likelihood):
    """Student's t noise for targets with outliers, y_o ~ f_o + scale_o · t_ν, independent over outputs.

    Args:
        scale: scale of the noise in units of the targets, one number for all outputs or a list of them.
        df: ν, the degrees of freedom, above 2 so that targets have a variance.
        learn: whether scale and ν are learned from these values, as point estimates.
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
        super().__init__()
        self.scale, self.df, self.learn, self.replicas = as_row(scale), df, learn, as_replicas(replicas)
        self.num_outputs = len(self.scale) if len(self.scale) > 1 else None
        start = torch.tensor(self.scale, dtype=torch.float64).log().expand(*self.replicas, -1)
        self.log_scale = nn.Parameter(start.clone(), requires_grad=learn)  # [R, O]
        self.log_excess = nn.Parameter(torch.full_like(start, math.log(df - 2.0)), requires_grad=learn)

    def distribution(self, outputs: Tensor) -> distributions.StudentT:
        self.check_outputs(outputs)
        scale, excess = (each.exp().to(outputs)[..., None, :] for each in (self.log_scale, self.log_excess))
        return _StudentT(2.0 + excess, outputs, scale, validate_args=False)

    @classmethod
    def for_targets(cls, targets: Tensor, replicas: tuple[int, ...] = ()) -> Self:
        """Return noise whose scale is a fifth of the standard deviation of the targets."""
        sd = targets.double().flatten(0, -2).std(0)
        return cls((0.2 * sd.clamp_min(1e-6)).tolist(), replicas=replicas)


class _StudentT(distributions.StudentT):
    def cdf(self, value: Tensor) -> Tensor:
        return by_scipy("stdtr", self.df, (value - self.loc) / self.scale)
