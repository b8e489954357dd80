"""Whether two samples are from one distribution, by means, covariances and distribution functions."""

import math

import torch
from scipy import stats
from torch import Tensor

ERRORS = 6.0
RARE = math.erfc(ERRORS / math.sqrt(2))  # the probability of a normal beyond six standard errors


def gaps(values: Tensor, others: Tensor) -> Tensor:
    """Between means and between covariances of samples `[n, K]`, in standard errors, `[K + K²]`."""
    return torch.cat([_gap(values, others), _gap(_products(values), _products(others))])


def least_probability(values: Tensor, others: Tensor) -> float:
    """The least p-value of Kolmogorov-Smirnov tests of the K coordinates."""
    pairs = zip(values.mT.numpy(), others.mT.numpy(), strict=True)
    return min(float(stats.ks_2samp(a, b, method="asymp").pvalue) for a, b in pairs)


def assert_same_distribution(values: Tensor, others: Tensor) -> None:
    """Means and covariances within six standard errors, distribution functions as improbably apart."""
    values, others = values.detach().flatten(1), others.detach().flatten(1)
    largest = float(gaps(values, others).max())
    assert largest <= ERRORS, f"moments are {largest:.1f} standard errors apart"
    probability = least_probability(values, others)
    assert probability >= RARE, f"distribution functions agree with probability {probability:.1e} only"


def assert_same_mean(values: Tensor, others: Tensor) -> None:
    """Of samples `[n]`, within six standard errors."""
    largest = float(_gap(values.detach(), others.detach()).max())
    assert largest <= ERRORS, f"means are {largest:.1f} standard errors apart"


def _products(values: Tensor) -> Tensor:
    """Of all pairs of centred coordinates, `[n, K²]`: their mean is the covariance."""
    centred = values - values.mean(0)
    return (centred[:, :, None] * centred[:, None, :]).flatten(1)


def _gap(values: Tensor, others: Tensor) -> Tensor:
    error = (values.var(0) / len(values) + others.var(0) / len(others)).sqrt()
    assert bool((error > 0).all()), "values without any spread: nothing is tested"
    return (values.mean(0) - others.mean(0)).abs() / error
