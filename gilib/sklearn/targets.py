"""Targets that no Gaussian describes: log-normal predictions, and warnings that say what to use instead."""

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

FEW, ENOUGH = 10, 20  # greatest number of whole values that may be classes; smallest number of rows that tell
REPEATED = 0.25  # share of rows with the same value, from which noise that varies takes it for certain
SKEWED = 1.0  # skewness of an exponential is 2, of a Gaussian 0


@dataclass(frozen=True, repr=False)
class LogNormalPrediction(GaussianPrediction):
    """An equal mixture of S log-normals at every point and output, in the units of the data.

    Attributes:
        means: means of the components' logarithms, `[S, R, N, O]`.
        component_sd: standard deviations of the logarithms, noise included, broadcastable with `means`.
    """

    @property
    def _component_means(self) -> Tensor:
        return (self.means + 0.5 * self.component_sd.square()).exp()

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, (1/S) Σ_s exp(m_s + σ_s²/2), `[R, N, O]`; it exceeds the median."""
        return self._component_means.mean(0)

    @property
    def function_sd(self) -> Tensor:
        return self._component_means.std(0, correction=0)

    @property
    def sd(self) -> Tensor:
        means = self._component_means
        noise = self.component_sd.square().expm1() * means.square()
        return (noise.mean(0) + means.var(0, correction=0)).sqrt()

    def cdf(self, values: Tensor) -> Tensor:
        return super().cdf(values.clamp_min(0.0).log())

    def quantile(self, probability: float) -> Tensor:
        return super().quantile(probability).exp()

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return log P(log y) - Σ_o log y_o, `[R, N]`, nats; -∞ unless all targets are positive."""
        targets = as_tensor(targets, "targets", self.means)
        positive = targets > 0
        logs = torch.where(positive, targets, 1.0).log()
        found = super().log_prob(logs) - logs.sum(-1)
        return found.masked_fill(~positive.all(-1), -torch.inf)


def logarithms(y: Tensor) -> Tensor:
    """Return the logarithms of targets, `[N, O]`, which must be positive."""
    if wrong := int((y <= 0).sum()):
        raise ValueError(
            f"target='log' wants positive targets, but {wrong} of y are not, the lowest {float(y.min()):g}: "
            "leave it out, or add a constant to y"
        )
    return y.log()


def warn_of_non_gaussian(y: NDArray[Any], names: Any) -> None:
    """Warn of columns of targets, `[N, O]`, that no Gaussian describes, and say what to use instead."""
    for k, column in enumerate(y.T):
        values, counts = np.unique(column, return_counts=True)
        if len(values) > 1 and len(column) >= ENOUGH and (advice := _advice(column, values, counts)):
            warnings.warn(f"column {label_of(names, k)!r} of y {advice}", stacklevel=4)


def _advice(column: NDArray[Any], values: NDArray[Any], counts: NDArray[Any]) -> str | None:
    """Return what is wrong with a column and what to do about it; None if nothing is."""
    if len(values) <= FEW and 2 * len(values) <= len(column) and (values == values.round()).all():
        return (
            f"holds only {len(values)} different numbers, all whole, but a Gaussian also predicts values "
            f"between them: BayesianClassifier gives each of them a probability{_or_counts(values)}"
        )
    if counts.max() >= REPEATED * len(column):
        return (
            f"is {values[counts.argmax()]:g} in {counts.max() / len(column):.0%} of the rows, but no "
            "Gaussian repeats itself: BayesianClassifier predicts how probable that value is, a regressor "
            f"trained on the other rows predicts the others{_or_counts(values)}"
        )
    skewed = column.mean() < 2 * column.std() and skew(column) > SKEWED
    if skewed and _are_counts(values):
        return (
            "holds counts, few of them large, and intervals of a Gaussian may reach below zero: "
            "likelihood='negative_binomial' predicts counts"
        )
    if skewed and values[0] > 0 and abs(skew(np.log(column))) < skew(column):
        return (
            "holds positive numbers only, few of them large, and intervals of a Gaussian may reach below "
            "zero: target='log' or likelihood='gamma' keeps them above"
        )
    return None


def _are_counts(values: NDArray[Any]) -> bool:
    return bool(values[0] >= 0 and (values == values.round()).all())


def _or_counts(values: NDArray[Any]) -> str:
    """Return further advice for values that are counts."""
    return ", likelihood='negative_binomial' is for counts" if _are_counts(values) else ""
