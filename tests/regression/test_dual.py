"""The engine through the M × M system and through the precision, against brute force."""

import itertools
from dataclasses import replace

import pytest
import torch

from gilib.linalg import FactorisationError, KroneckerIdentity, ScaledIdentity
from gilib.regression import regress
from gilib.regression.dual import regress_dual
from gilib.regression.primal import prior_log_prob
from gilib.statistics import full_statistics, per_output_statistics, shared_statistics
from tests.support.oracles import (
    Operations,
    assert_vmap_equals_loop,
    columns_log_prob,
    condition_jointly,
    normal,
    positive,
    positive_definite,
)

pytestmark = pytest.mark.usefixtures("float64")
EXACT = {"rtol": 1e-10, "atol": 1e-10}
FAN_IN, OUTPUTS = 6, 4
KINDS = ("shared", "per_output", "full")


def scaled(generator, lead=()):
    return ScaledIdentity(1.7 * positive(generator, *lead), FAN_IN)


def kronecker(generator, lead=()):
    return KroneckerIdentity(1.7 * positive_definite(generator, *lead, 3, 3), FAN_IN // 3)


PRIORS = pytest.mark.parametrize("make_prior", [scaled, kronecker])


def precision_of(kind, generator, *shape):
    """Random precisions for `[..., M]`: λ, or, if full, the root L of Λ."""
    if kind == "full":
        return torch.linalg.cholesky(positive_definite(generator, *shape, shape[-1]))
    return positive(generator, *shape[:-1], *[OUTPUTS] * (kind == "per_output"), shape[-1])


def routes(kind, features, targets, precision, prior):
    if kind == "full":
        whitened = precision.mT @ features, precision.mT @ targets, torch.ones_like(features[..., :1])
        return regress_dual(*whitened, prior), regress(full_statistics(features, targets, precision), prior)
    supply = per_output_statistics if kind == "per_output" else shared_statistics
    root = precision.sqrt().mT if kind == "per_output" else precision.sqrt()[..., None]
    return (
        regress_dual(features, targets, root, prior),
        regress(supply(features, targets, precision), prior),
    )


def both_routes(kind, features, targets, prior, generator):
    """The dual and the primal posterior, and the noise covariances Λ_o⁻¹ `[O or 1, M, M]`."""
    precision = precision_of(kind, generator, len(targets))
    noise = torch.linalg.inv(precision @ precision.mT) if kind == "full" else torch.diag_embed(1 / precision)
    return *routes(kind, features, targets, precision, prior), noise.reshape(-1, *noise.shape[-2:])


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=[1, 2, FAN_IN, 9], ids=["M=1", "M<I", "M=I", "M>I"])
def problem(request, generator):
    """Features `[M, I]` and targets `[M, O]`."""
    return normal(generator, request.param, FAN_IN), normal(generator, request.param, OUTPUTS)


@PRIORS
def test_means_covariances_draws_and_scores_of_both_routes(make_prior, kind, problem, generator):
    """A draw is the mean plus a root of the covariance, times the noise."""
    prior = make_prior(generator)
    dual, primal, noise = both_routes(kind, *problem, prior, generator)
    features, targets = problem
    covariances = primal.covariance.expand(OUTPUTS, FAN_IN, FAN_IN)
    for o in range(OUTPUTS):
        given = torch.linalg.inv(prior.dense()), features, noise[o % len(noise)], targets[:, o]
        mean, covariance = condition_jointly(*given)
        torch.testing.assert_close(primal.mean[:, o], mean, **EXACT)
        torch.testing.assert_close(covariances[o], covariance, **EXACT)
    evidence = features @ torch.linalg.inv(prior.dense()) @ features.mT + noise
    log_evidence = columns_log_prob(targets, torch.zeros_like(targets), evidence)
    unit = torch.eye(FAN_IN)[:, :, None].expand(FAN_IN, FAN_IN, OUTPUTS)
    for posterior in (dual, primal):
        torch.testing.assert_close(posterior.mean, primal.mean, **EXACT)
        torch.testing.assert_close(posterior.covariance, primal.covariance, **EXACT)
        centre, _ = posterior.draw(torch.zeros(FAN_IN, OUTPUTS))
        torch.testing.assert_close(centre, primal.mean, **EXACT)
        root = posterior.draw(unit)[0] - centre  # [k, I, O]
        torch.testing.assert_close(torch.einsum("kio,kjo->oij", root, root), covariances, **EXACT)
        weights, log_pq = posterior.draw(normal(generator, 7, FAN_IN, OUTPUTS))
        log_q = columns_log_prob(weights, primal.mean, covariances)
        torch.testing.assert_close(posterior.log_prob(weights), log_q, rtol=0, atol=1e-9)
        log_p = prior_log_prob(weights, prior, OUTPUTS)
        torch.testing.assert_close(log_pq, log_p - log_q, rtol=0, atol=1e-9)
        log_fit = columns_log_prob(targets.expand(7, -1, -1), features @ weights, noise)
        torch.testing.assert_close(log_pq, log_evidence - log_fit, rtol=0, atol=1e-9)


@pytest.mark.parametrize("lead", [(3,), (3, 2)])
@pytest.mark.parametrize("parameters", [0, 1])
def test_leading_axes_are_a_loop(kind, parameters, lead, generator):
    """With the sample axis on everything, or on the noise alone (`parameters` leading axes fewer)."""
    own = lead[parameters:]
    features, targets = normal(generator, *own, 5, FAN_IN), normal(generator, *own, 5, OUTPUTS)
    precision, scale = precision_of(kind, generator, *own, 5), positive(generator, *own)
    noise, prior = normal(generator, *lead, FAN_IN, OUTPUTS), ScaledIdentity(scale, FAN_IN)
    for k, together in enumerate(routes(kind, features, targets, precision, prior)):
        weights, log_pq = together.draw(noise)
        assert weights.shape == (*lead, FAN_IN, OUTPUTS) and log_pq.shape == lead
        scored = prior_log_prob(weights, prior, OUTPUTS) - together.log_prob(weights)
        torch.testing.assert_close(log_pq, scored, **EXACT)
        for index in itertools.product(*map(range, lead)):
            at = index[parameters:]
            alone = ScaledIdentity(scale[at], FAN_IN)
            one = routes(kind, features[at], targets[at], precision[at], alone)[k]
            expected, expected_pq = one.draw(noise[index])
            torch.testing.assert_close(weights[index], expected, **EXACT)
            torch.testing.assert_close(log_pq[index], expected_pq, **EXACT)
            torch.testing.assert_close(together.covariance[at], one.covariance, **EXACT)


@PRIORS
@pytest.mark.parametrize("groups", [1, OUTPUTS])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_gradients_against_finite_differences(lead, groups, make_prior, generator):
    prior = make_prior(generator, lead)
    inputs = [
        normal(generator, *lead, 2, FAN_IN),
        normal(generator, 2, OUTPUTS),
        positive(generator, 2, groups),
        prior.scale if make_prior is scaled else prior.block,
        normal(generator, *lead, FAN_IN, OUTPUTS),
    ]

    def function(features, targets, root, structure, noise):
        if make_prior is scaled:
            operator = ScaledIdentity(structure, FAN_IN)
        else:
            operator = KroneckerIdentity(0.5 * (structure + structure.mT), prior.repeats)
        return regress_dual(features, targets, root, operator).draw(noise)

    assert torch.autograd.gradcheck(function, [x.requires_grad_() for x in inputs], fast_mode=True)


def test_vmap_equals_loop(generator):
    features, noise = normal(generator, 2, FAN_IN), normal(generator, FAN_IN, OUTPUTS)
    targets, root = normal(generator, 2, OUTPUTS), positive(generator, 2, OUTPUTS)
    prior = scaled(generator)

    def scalar(phi, z):
        weights, log_pq = regress_dual(phi, targets, root, prior).draw(z)
        return weights.sin().sum() + log_pq.sin().sum()

    assert_vmap_equals_loop(torch.func.grad(scalar, argnums=(0, 1)), (features, noise), (0, 0), 1e-10)


@PRIORS
@pytest.mark.parametrize("groups", [1, OUTPUTS])
def test_nothing_of_the_square_of_the_fan_in_is_built(make_prior, groups, generator):
    """Sizes are of order M I and I O, forward and backward, and the one factorisation is of M × M."""
    fan_in = 60
    prior = make_prior(generator)
    prior = replace(prior, **({"size": fan_in} if make_prior is scaled else {"repeats": fan_in // 3}))
    features = normal(generator, 2, fan_in).requires_grad_()
    targets, root = normal(generator, 2, OUTPUTS), positive(generator, 2, groups)
    with Operations() as operations:
        weights, log_pq = regress_dual(features, targets, root, prior).draw(
            normal(generator, fan_in, OUTPUTS)
        )
        (weights.sum() + log_pq).backward()
    assert 0 < operations.largest <= fan_in * OUTPUTS
    assert [shape for shape in operations.factorised if shape[-1] != 3] == [(groups, 2, 2)]


def test_a_failed_factorisation_is_named(generator):
    features = normal(generator, 2, FAN_IN)
    features[0, 0] = torch.nan
    posterior = regress_dual(features, normal(generator, 2, 1), torch.ones(2, 1), scaled(generator))
    with pytest.raises(FactorisationError, match="of the pseudo-outputs is not positive definite .*NaN"):
        posterior.draw(normal(generator, FAN_IN, 1))
