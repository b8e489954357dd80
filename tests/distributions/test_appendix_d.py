"""Ober & Aitchison (2021), App. D, line by line, with its misprints mended."""

import math

import pytest
import scipy.stats
import torch

from gilib.distributions import Wishart
from tests.support import D, normals

M, NU = 3, 4.6


def triangular(entries):
    """A lower triangular matrix (the paper's T, transposed) from its entries row by row."""
    rows, columns = torch.tril_indices(M, M)
    return torch.zeros(M, M, dtype=D).index_put((rows, columns), entries)


def bartlett_log_density(t, nu):
    """Eq. 54 for a lower triangular t."""
    total = torch.zeros((), dtype=D)
    for j in range(1, M + 1):
        diagonal = t[j - 1, j - 1]
        total += (nu - j) * diagonal.log() - diagonal**2 / 2
        total -= (nu - j - 1) / 2 * math.log(2) + math.lgamma((nu - j + 1) / 2)
        total -= (t[j:, j - 1] ** 2 / 2 + math.log(2 * math.pi) / 2).sum()
    return total


@pytest.mark.parametrize("nu", [M - 1, M, M + 2])
def test_eq_46_needs_at_least_as_many_rows_as_columns(nu):
    """Misprint: "P ≥ ν". With ν < P the product is singular and has no density; with ν ≥ P it is Wishart."""
    x = normals(1000, nu, M)
    sigma = x.mT @ x
    if nu < M:
        assert (torch.linalg.matrix_rank(sigma) == nu).all()
        with pytest.raises(ValueError, match="df must exceed"):
            Wishart(float(nu), torch.eye(M, dtype=D))
        return
    drawn = Wishart(float(nu), torch.eye(M, dtype=D)).rsample(noise=normals(1000, M, M, seed=1))
    for statistic in (torch.logdet, lambda matrices: matrices[:, 0, 1], lambda matrices: matrices[:, 2, 2]):
        assert scipy.stats.ks_2samp(statistic(sigma).numpy(), statistic(drawn).numpy()).pvalue > 1e-6


@pytest.mark.parametrize("nu", [2.3, NU, 11.0])
def test_eqs_54_to_57_give_the_wishart_density(nu):
    t = triangular(normals(M * (M + 1) // 2).abs() + 0.3)
    powers = torch.arange(M, 0, -1, dtype=D)
    log_volume = M * math.log(2) + (powers * t.diagonal().log()).sum()
    dist = Wishart(nu, torch.eye(M, dtype=D))
    torch.testing.assert_close(dist.log_prob(t @ t.mT), bartlett_log_density(t, nu) - log_volume)
