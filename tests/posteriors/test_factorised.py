"""The factorised posterior against torch.distributions."""

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from gilib.posteriors import BuildContext, Factorised
from gilib.sites import DenseWeights
from tests.support.oracles import assert_mean_within, columns_log_prob, draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")
FAN_IN, OUTPUTS = 6, 3


def build(spec=None, generator=None, replicas=()):
    context = BuildContext(replicas=replicas, generator=generator, dtype=torch.float64)
    return (spec or Factorised()).build(DenseWeights(FAN_IN, OUTPUTS, True), context)


def spread_out(module, generator):
    """Give every weight a variance of its own, of the size of the prior's."""
    with torch.no_grad():
        module.log_variance.copy_(0.7 * normal(generator, *module.log_variance.shape) - 1.5)
    return module


def column_kl(module, prior):
    """Σ_o KL(N(μ_o, diag σ_o²) ‖ N(0, P⁻¹)) by torch.distributions."""
    covariance = torch.diag_embed(module.log_variance.exp().mT)
    posterior = MultivariateNormal(module.mean.mT, covariance)
    target = MultivariateNormal(torch.zeros(FAN_IN), torch.linalg.inv(prior.dense())[..., None, :, :])
    return kl_divergence(posterior, target).sum(-1)


@pytest.mark.parametrize(("replicas", "lead"), [((), ()), ((), (4,)), ((2,), (2,)), ((2,), (4, 2))])
def test_kl(make_prior, replicas, lead, generator):
    module = spread_out(build(generator=generator, replicas=replicas), generator)
    prior = make_prior(generator, FAN_IN, lead)
    torch.testing.assert_close(module.kl(prior), column_kl(module, prior), rtol=1e-11, atol=1e-11)


def test_draw_is_scored_under_prior_and_posterior(make_prior, generator):
    module = spread_out(build(generator=generator), generator)
    prior = make_prior(generator, FAN_IN)
    weights, log_pq = draw_weights(module, None, prior, normal(generator, 5, FAN_IN, OUTPUTS))
    log_p = columns_log_prob(weights, torch.zeros(FAN_IN, OUTPUTS), torch.linalg.inv(prior.dense())[None])
    log_q = Normal(module.mean, (0.5 * module.log_variance).exp()).log_prob(weights).sum((-2, -1))
    assert log_pq.shape == (5,)
    torch.testing.assert_close(log_pq, log_p - log_q, rtol=1e-11, atol=1e-11)


def test_draw_moments_and_divergence(make_prior, generator):
    module = spread_out(build(generator=generator), generator)
    prior = make_prior(generator, FAN_IN)
    weights, log_pq = draw_weights(module, None, prior, normal(generator, 20_000, FAN_IN, OUTPUTS))
    weights, mean = weights.detach(), module.mean.detach()
    assert_mean_within(weights, mean)
    assert_mean_within((weights - mean) ** 2, module.log_variance.detach().exp())
    assert_mean_within(-log_pq.detach(), column_kl(module, prior).detach())


@pytest.mark.parametrize(("start", "variance"), [("paper", 0.02 / FAN_IN**0.5), ("reference", 0.02 / FAN_IN)])
def test_where_the_variances_start(start, variance):
    module = build(Factorised(initial_variance=0.02, variance_start=start))
    expected = torch.full((FAN_IN, OUTPUTS), variance)
    torch.testing.assert_close(module.log_variance.detach().exp(), expected)


def test_the_mean_is_stored_at_scale_one_and_starts_as_neals_prior():
    generator = torch.Generator().manual_seed(3)
    context = BuildContext(generator=generator, dtype=torch.float64)
    module = Factorised().build(DenseWeights(100, 400, True), context)
    stored = module.scaled_mean.detach()
    torch.testing.assert_close(module.mean.detach(), stored / 10)
    assert_mean_within(stored.flatten(), 0.0)
    assert_mean_within(stored.flatten() ** 2, 1.0)


def test_what_is_learned():
    module = build(replicas=(2,))
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    assert shapes == {"scaled_mean": (2, FAN_IN, OUTPUTS), "log_variance": (2, FAN_IN, OUTPUTS)}
    assert not module.needs_inducing
