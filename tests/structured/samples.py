"""Whether two samples are from one distribution, by means, covariances and distribution functions."""

import math

from scipy import stats
from torch import Tensor

from tests.support import assert_same_mean

RARE = math.erfc(6.0 / math.sqrt(2))  # the probability of a normal beyond six standard errors


def assert_same_distribution(values: Tensor, others: Tensor) -> None:
    """Means and covariances within six standard errors, distribution functions as improbably apart."""
    values, others = values.detach().flatten(1), others.detach().flatten(1)
    assert_same_mean(values, others)
    assert_same_mean(_products(values), _products(others))
    pairs = zip(values.mT.numpy(), others.mT.numpy(), strict=True)
    probability = min(float(stats.ks_2samp(a, b, method="asymp").pvalue) for a, b in pairs)
    assert probability >= RARE, f"distribution functions agree with probability {probability:.1e} only"


def _products(values: Tensor) -> Tensor:
    """Of all pairs of centred coordinates, `[n, K²]`: their mean is the covariance."""
    centred = values - values.mean(0)
    return (centred[:, :, None] * centred[:, None, :]).flatten(1)
