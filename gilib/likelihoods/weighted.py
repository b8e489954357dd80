"""Rows that count more than once, or less."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor
from torch.distributions import Distribution

from gilib.likelihoods.base import Likelihood
from gilib.validation import as_tensor

if TYPE_CHECKING:
    from gilib.draws import Drawn


class Weighted(Likelihood):
    """The log-likelihood of every row times its weight, so that a row of weight 3 counts as three rows.

    A target is that of the likelihood with the weight of its row behind it: `[N, O + 1]`, of labels `[N, 2]`.

    Args:
        likelihood: that of a row of weight one.

    >>> from gilib.likelihoods import Gaussian
    >>> y, weights = torch.zeros(2, 1), torch.tensor([1.0, 3.0])
    >>> found = Weighted(Gaussian()).log_prob(torch.zeros(4, 2, 1), with_weights(y, weights))
    >>> round(float(found[0, 1] / found[0, 0]), 4)
    3.0
    """

    def __init__(self, likelihood: Likelihood):
        super().__init__()
        self.likelihood, self.replicas = likelihood, likelihood.replicas
        self.output_axes = likelihood.output_axes

    def parts(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Targets of the likelihood itself, and weights `[..., N]`."""
        *own, weights = targets.split([targets.shape[-1] - 1, 1], -1)
        (own,) = own if self.likelihood.target_axes else (own[0][..., 0].long(),)
        return own, weights[..., 0]

    def distribution(self, outputs: Tensor) -> Distribution:
        return self.likelihood.distribution(outputs)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        own, weights = self.parts(targets)
        return weights * self.likelihood.log_prob(outputs, own)

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        own, weights = self.parts(targets)
        return weights * self.likelihood.expected_log_prob(functions, x, own)

    def check_targets(self, targets: Tensor, num_points: int, outputs: int) -> None:
        """Targets must be those of the likelihood; `with_weights` checks the weights."""
        self.likelihood.check_targets(self.parts(targets)[0], num_points, outputs)

    def infers_noise(self, replicas: tuple[int, ...]) -> NoReturn:
        """Refuse: a rule that asks has statistics of its own, in which every row counts once."""
        raise ValueError(
            "this rule counts every row once, and weights are given: repeat rows, or take gilib.Adam"
        )


def with_weights(targets: Tensor, weights: object, axes: int = 1) -> Tensor:
    """Targets as `Weighted` takes them: in their own dtype, and whole numbers in torch's default one.

    Args:
        targets: `[..., N, O]`, or labels `[..., N]`.
        weights: of the rows, `[N]`.
        axes: the likelihood's `target_axes`.
    """
    like = targets if targets.is_floating_point() else torch.empty(0, dtype=torch.get_default_dtype())
    given = as_tensor(weights, "weights", like).to(targets.device)
    values = (targets if axes else targets[..., None]).to(like.dtype)
    if given.shape != values.shape[-2:-1]:
        raise ValueError(f"weights must have shape {list(values.shape[-2:-1])}, got {list(given.shape)}")
    if not bool((given.isfinite() & (given > 0)).all()):
        raise ValueError("weights must be positive, finite numbers: leave rows out whose weight is zero")
    return torch.cat([values, given.to(values).expand(values.shape[:-1])[..., None]], -1)
