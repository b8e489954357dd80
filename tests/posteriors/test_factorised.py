"""The factorised posterior against torch.distributions."""

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from gilib.posteriors import BuildContext, Factorised
from gilib.sites import DenseWeights
from tests.support.oracles import assert_mean_within, columns_log_prob, draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")
FAN_IN, OUTPUTS = 6, 3


def build(generator, replicas=()):
    """With a variance for every weight, of the size of the prior's."""
    context = BuildContext(replicas=replicas, generator=generator, dtype=torch.float64)
    module = Factorised().build(DenseWeights(FAN_IN, OUTPUTS, True), context)
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
    module = build(generator, replicas)
    prior = make_prior(generator, FAN_IN, lead)
    torch.testing.assert_close(module.kl(prior), column_kl(module, prior), rtol=1e-11, atol=1e-11)


def test_draw_is_scored_under_prior_and_posterior(make_prior, generator):
    module = build(generator)
    prior, noise = make_prior(generator, FAN_IN), normal(generator, 5, FAN_IN, OUTPUTS)
    weights, log_pq = draw_weights(module, None, prior, noise)
    log_p = columns_log_prob(weights, torch.zeros(FAN_IN, OUTPUTS), torch.linalg.inv(prior.dense())[None])
    deviation = (0.5 * module.log_variance).exp()
    torch.testing.assert_close(weights, module.mean + deviation * noise, rtol=1e-11, atol=1e-11)
    log_q = Normal(module.mean, deviation).log_prob(weights).sum((-2, -1))
    torch.testing.assert_close(log_pq, log_p - log_q, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("start", "variance"), [("paper", 0.02 / FAN_IN**0.5), ("reference", 0.02 / FAN_IN)])
def test_where_the_variances_start(start, variance):
    spec = Factorised(initial_variance=0.02, variance_start=start)
    module = spec.build(DenseWeights(FAN_IN, OUTPUTS, True), BuildContext())
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
