"""Closed-form divergences against torch, Monte Carlo and the Gamma distribution."""

import pytest
import torch
from torch.distributions import Gamma, kl_divergence

from gilib.distributions import InverseWishart, Wishart

D = torch.float64
BOTH = pytest.mark.parametrize("family", [Wishart, InverseWishart])


def positive_definite(size, batch=(), seed=0):
    root = torch.randn(*batch, size, size, generator=torch.Generator().manual_seed(seed), dtype=D)
    return root @ root.mT / size + 0.5 * torch.eye(size, dtype=D)


def pair(family, size=3):
    return family(size + 0.7, positive_definite(size)), family(size + 2.4, positive_definite(size, seed=1))


@BOTH
@pytest.mark.parametrize("size", [1, 3])
def test_against_monte_carlo(family, size):
    p, q = pair(family, size)
    noise = torch.randn(3000, size, size, generator=torch.Generator().manual_seed(2), dtype=D)
    factor = p.rsample_cholesky(noise=noise)
    log_ratio = p.log_prob_cholesky(factor) - q.log_prob_cholesky(factor)
    standard_error = log_ratio.std() / len(log_ratio) ** 0.5
    assert (log_ratio.mean() - kl_divergence(p, q)).abs() < 6 * standard_error


def test_wishart_against_torch():
    p, q = pair(Wishart)
    oracle = kl_divergence(*(torch.distributions.Wishart(dist.df, dist.scale) for dist in (p, q)))
    torch.testing.assert_close(kl_divergence(p, q), oracle)


def test_inversion_leaves_the_divergence_as_it_is():
    p, q = pair(InverseWishart)
    inverses = (Wishart(dist.df, torch.linalg.inv(dist.scale)) for dist in (p, q))
    torch.testing.assert_close(kl_divergence(p, q), kl_divergence(*inverses))


@BOTH
def test_one_by_one_matrices_against_gamma(family):
    p, q = pair(family, 1)
    rates = (dist.scale[0, 0] / 2 if family is InverseWishart else 0.5 / dist.scale[0, 0] for dist in (p, q))
    gammas = (Gamma(dist.df / 2, rate) for dist, rate in zip((p, q), rates, strict=True))
    torch.testing.assert_close(kl_divergence(p, q), kl_divergence(*gammas))


@BOTH
def test_zero_between_equals_and_batches(family):
    df, scale = torch.tensor([[2.5], [9.0]], dtype=D), positive_definite(3, (4,))
    p = family(df, scale)
    torch.testing.assert_close(kl_divergence(p, p), torch.zeros(2, 4, dtype=D), rtol=0, atol=1e-12)
    q = family(5.0, positive_definite(3, seed=1))
    one = torch.stack([torch.stack([kl_divergence(family(d[0], s), q) for s in scale]) for d in df])
    assert (one > 0).all()
    torch.testing.assert_close(kl_divergence(p, q), one)


@BOTH
def test_gradients(family):
    p, q = pair(family)

    def divergence(p_df, p_root, q_df, q_root):
        return kl_divergence(family(p_df, scale_tril=p_root.tril()), family(q_df, scale_tril=q_root.tril()))

    parameters = [t.clone().requires_grad_() for t in (p.df, p.scale_tril, q.df, q.scale_tril)]
    assert torch.autograd.gradcheck(divergence, parameters)
