"""Targets that no Gaussian describes: logarithms of positive ones, and warnings of others."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import skew
from torch import Tensor

from gilib.likelihoods.mixtures import GaussianPrediction
from gilib.sklearn.columns import label_of
from gilib.validation import as_tensor

FEW, ENOUGH = 10, 20  # whole numbers that may be classes or grades; rows that tell
SKEWED = 1.0  # skewness of an exponential is 2, of a Gaussian 0


@dataclass(frozen=True, repr=False)
class LogNormalPrediction(GaussianPrediction):
    """An equal mixture of S log-normals at every point and output, in the units of the data.

    Attributes:
        means: of the components' logarithms, `[S, R, N, O]`.
        component_sd: standard deviations of the logarithms, noise included, broadcastable to `means`.
    """

    @property
    def _component_means(self) -> Tensor:
        return (self.means + 0.5 * self.component_sd.square()).exp()

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, (1/S) Σ_s exp(m_s + σ_s²/2), `[R, N, O]`; it is above the median."""
        return self._component_means.mean(0)

    @property
    def function_sd(self) -> Tensor:
        """Standard deviation of the components' means, `[R, N, O]`."""
        return self._component_means.std(0, correction=0)

    @property
    def sd(self) -> Tensor:
        """Standard deviation of the mixture, noise included, `[R, N, O]`."""
        means = self._component_means
        noise = self.component_sd.square().expm1() * means.square()
        return (noise.mean(0) + means.var(0, correction=0)).sqrt()

    def quantile(self, probability: float) -> Tensor:
        """The quantile of every output's mixture, `[R, N, O]`: exp of that of the logarithms."""
        return super().quantile(probability).exp()

    def log_prob(self, targets: Tensor) -> Tensor:
        """Log density of every point, `[R, N]` nats: that of log y, minus Σ_o log y_o; -∞ unless y > 0."""
        targets = as_tensor(targets, "targets", self.means)
        positive = targets > 0
        logs = torch.where(positive, targets, 1.0).log()
        found = super().log_prob(logs) - logs.sum(-1)
        return found.masked_fill(~positive.all(-1), -torch.inf)


def logarithms(y: Tensor) -> Tensor:
    """Of targets `[N, O]`.

    Raises:
        ValueError: unless all are positive.
    """
    if wrong := int((y <= 0).sum()):
        raise ValueError(
            f"target='log' wants positive targets, and {wrong} of y are not, the lowest {float(y.min()):g}: "
            "leave it out, or fit y plus a constant of yours"
        )
    return y.log()


def warn_of_non_gaussian(y: NDArray[Any], names: Any) -> None:
    """Warn of columns of targets `[N, O]` that no Gaussian describes, and say what to do."""
    for k, column in enumerate(y.T):
        values, counts = np.unique(column, return_counts=True)
        if len(values) > 1 and len(column) >= ENOUGH and (advice := _advice(column, values, counts)):
            warnings.warn(f"column {label_of(names, k)!r} of y {advice}", stacklevel=4)


def _advice(column: NDArray[Any], values: NDArray[Any], counts: NDArray[Any]) -> str | None:
    """What is wrong with a column, and what to do; None: nothing."""
    if len(values) <= FEW and 2 * len(values) <= len(column) and (values == values.round()).all():
        return (
            f"holds {len(values)} whole numbers only, and a Gaussian expects what lies between: "
            f"BayesianClassifier gives each of them a probability{_or_counts(values)}"
        )
    if 2 * counts.max() >= len(column):
        return (
            f"is {values[counts.argmax()]:g} in {counts.max() / len(column):.0%} of the rows, and no "
            "Gaussian repeats itself: BayesianClassifier says how probable that is, a regressor of the other "
            f"rows how much it is otherwise{_or_counts(values)}"
        )
    skewed = column.mean() < 2 * column.std() and skew(column) > SKEWED
    if skewed and _are_counts(values):
        return (
            "holds counts, few of them large, and intervals of a Gaussian may reach below zero: "
            "likelihood='negative_binomial' has whole numbers from zero on"
        )
    if skewed and values[0] > 0 and abs(skew(np.log(column))) < skew(column):
        return (
            "holds positive numbers only, few of them large, and intervals of a Gaussian may reach below "
            "zero: target='log' or likelihood='gamma' keeps them above"
        )
    return None


def _are_counts(values: NDArray[Any]) -> bool:
    """Whether sorted values are whole numbers from zero on."""
    return bool(values[0] >= 0 and (values == values.round()).all())


def _or_counts(values: NDArray[Any]) -> str:
    return ", likelihood='negative_binomial' is for counts" if _are_counts(values) else ""
