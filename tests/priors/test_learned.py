"""Priors with a posterior of their own: log-ratios against scipy at the drawn values, and moments."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from gilib.linalg import KroneckerIdentity, ScaledIdentity
from gilib.priors import ScalePrior, SpatialIWPrior
from tests.support.oracles import assert_mean_within, draw_prior, prior_module

pytestmark = pytest.mark.usefixtures("float64")
CHANNELS = 2  # input channels; with kernel_size 1 the fan-in of a dense layer
IDS = ["paper", "reference"]
SCALE_PRIORS = [ScalePrior(1.5, 2.5, -0.3, 0.4, parameterisation=name) for name in IDS]
SPATIAL_PRIORS = [SpatialIWPrior(name, initial_log_nu=0.7) for name in IDS]
SCALES = pytest.mark.parametrize("spec", SCALE_PRIORS, ids=IDS)
SPATIAL = pytest.mark.parametrize("spec", SPATIAL_PRIORS, ids=IDS)
KERNELS = pytest.mark.parametrize("pixels", [1, 4])


def scale_of(precision, spec, fan_in):
    """The scale s from the drawn precision: I s, or the reference implementation's I / √s."""
    ratio = precision.scale / fan_in
    return ratio if spec.parameterisation == "paper" else ratio**-2


@SCALES
@KERNELS
def test_scale_log_ratio_at_the_drawn_value(spec, pixels, generator):
    module = prior_module(spec, CHANNELS, pixels, generator)
    precision, log_pq = draw_prior(module, generator)
    assert isinstance(precision, ScaledIdentity)
    s = scale_of(precision, spec, CHANNELS * pixels).detach().numpy()
    alpha, beta = (float(p.detach().exp()) for p in (module.log_alpha, module.log_beta))
    log_p = scipy.stats.gamma(spec.shape, scale=1 / spec.rate).logpdf(s)
    log_q = scipy.stats.gamma(spec.shape + alpha, scale=1 / (spec.rate + beta)).logpdf(s)
    np.testing.assert_allclose(log_pq.detach(), log_p - log_q, rtol=1e-10, atol=1e-10)


@SCALES
def test_scale_moments(spec, generator):
    module = prior_module(spec, CHANNELS, 1, generator)
    precision, _ = draw_prior(module, generator, 10_000)
    s = scale_of(precision, spec, CHANNELS).detach()
    shape, rate = spec.shape + module.log_alpha.detach().exp(), spec.rate + module.log_beta.detach().exp()
    assert_mean_within(s, shape / rate)
    assert_mean_within(s**2, shape * (shape + 1) / rate**2)


def omega_of(precision, spec, pixels):
    """The matrix Ω from the drawn precision, whose blocks are I Ω or, as in the reference, channels · Ω."""
    return precision.block / (CHANNELS * (pixels if spec.scaling == "paper" else 1))


def wishart_parameters(module, spec, pixels):
    """The prior's and the posterior's (scale matrix, degrees of freedom)."""
    start = (pixels + 1 if spec.scaling == "paper" else pixels) * torch.eye(pixels)
    root, nu = module.psi_factor.detach().tril(), module.log_nu.detach().exp()
    return (start, pixels + 1.0), (start + nu * root @ root.mT, pixels + 1.0 + float(nu))


@SPATIAL
@KERNELS
def test_spatial_log_ratio_at_the_drawn_value(spec, pixels, generator):
    module = prior_module(spec, CHANNELS, pixels, generator)
    precision, log_pq = draw_prior(module, generator)
    assert isinstance(precision, KroneckerIdentity) and precision.repeats == CHANNELS
    (prior_scale, prior_df), (scale, df) = wishart_parameters(module, spec, pixels)
    for omega, ratio in zip(omega_of(precision, spec, pixels).detach(), log_pq.detach(), strict=True):
        log_p = scipy.stats.invwishart(prior_df, prior_scale.numpy()).logpdf(omega.numpy())
        log_q = scipy.stats.invwishart(df, scale.numpy()).logpdf(omega.numpy())
        assert float(ratio) == pytest.approx(float(log_p - log_q), rel=1e-8, abs=1e-8)


@SPATIAL
@pytest.mark.parametrize("pixels", [1, 3])
def test_spatial_moments(spec, pixels, generator):
    """E[Ω⁻¹] = ν Ψ⁻¹ and E[Ω] = Ψ / (ν - K - 1), under the posterior."""
    module = prior_module(spec, CHANNELS, pixels, generator)
    with torch.no_grad():
        module.log_nu.fill_(math.log(9.0))  # far enough from the degrees of freedom where moments end
    precision, _ = draw_prior(module, generator, 5_000)
    omega = omega_of(precision, spec, pixels).detach()
    _, (scale, df) = wishart_parameters(module, spec, pixels)
    assert_mean_within(torch.linalg.inv(omega), df * torch.linalg.inv(scale))
    assert_mean_within(omega, scale / (df - pixels - 1))
