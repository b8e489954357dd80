"""The precision that every prior draws, gradients, replicas, arithmetic; ratios against scipy, moments."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from gilib.linalg import KroneckerIdentity, ScaledIdentity
from gilib.priors import NealPrior, ScalePrior, SpatialIWPrior, StandardPrior
from tests.support.oracles import assert_mean_within, draw_prior, normal, prior_module, site

pytestmark = pytest.mark.usefixtures("float64")
CHANNELS = 2  # input channels; with kernel_size 1 the fan-in of a dense layer
ALL = {
    "neal": NealPrior(scale=1.7),
    "standard": StandardPrior(),
    "neal-learned": NealPrior(scale=1.3, learn=True),
    "scale": ScalePrior(1.5, 2.5, -0.3, 0.4),
    "scale-reference": ScalePrior(1.5, 2.5, -0.3, 0.4, parameterisation="reference"),
    "spatial": SpatialIWPrior(initial_log_nu=0.7),
    "spatial-reference": SpatialIWPrior("reference", initial_log_nu=0.7),
}
EVERY = pytest.mark.parametrize("spec", ALL.values(), ids=ALL)
LEARNED = pytest.mark.parametrize("spec", list(ALL.values())[2:], ids=list(ALL)[2:])


@pytest.mark.parametrize("pixels", [1, 9])
@pytest.mark.parametrize(
    ("spec", "variance"),
    [(NealPrior(0.3), 0.09), (StandardPrior(), None), (NealPrior(0.3, learn=True), 0.09)],
    ids=["neal", "standard", "neal-learned"],
)
def test_variances_of_priors_from_which_nothing_is_drawn(spec, variance, pixels):
    """Neal's are divided by the fan-in, those of the standard prior are 1; a scale may be learned."""
    module, fan_in = prior_module(spec, CHANNELS, pixels), CHANNELS * pixels
    precision, log_pq = module.draw(torch.zeros(5, 0))
    wanted = (1.0 if variance is None else variance / fan_in) * torch.eye(fan_in)
    torch.testing.assert_close(torch.linalg.inv(precision.dense()), wanted)
    assert float(log_pq) == 0.0 and module.noise_size == 0
    learned = spec == NealPrior(0.3, learn=True)
    assert len(list(module.parameters())) == learned
    assert list(module.state_dict()) == (["log_scale"] if learned else ["scale"])


@pytest.mark.parametrize("other", [NealPrior(5.0), StandardPrior()])
def test_the_state_of_another_fixed_prior_is_refused(other):
    module, kept = prior_module(NealPrior(1.0), CHANNELS), prior_module(other, CHANNELS).state_dict()
    with pytest.raises(RuntimeError, match=r"scale: fixed at 2 here, (0.08|1) in the state"):
        module.load_state_dict(kept)
    assert float(module.scale) == CHANNELS


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arithmetic_is_that_of_the_parameters_whatever_torchs_default(spec, dtype):
    torch.set_default_dtype(torch.float32 if dtype == torch.float64 else torch.float64)
    noise = torch.tensor([[0.3], [-1.1]], dtype=torch.float64)
    module = spec.build(site(CHANNELS), torch.zeros((), dtype=dtype))
    precision, log_pq = module.draw(noise[:, : module.noise_size].to(dtype))
    assert precision.dense().dtype == log_pq.dtype == dtype
    exact = spec.build(site(CHANNELS), torch.zeros((), dtype=torch.float64))
    torch.set_default_dtype(torch.float64)
    expected, expected_pq = exact.draw(noise[:, : module.noise_size])
    close = {"rtol": 2e-5, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 1e-13, "atol": 1e-13}
    torch.testing.assert_close(precision.dense().double(), expected.dense(), **close)
    torch.testing.assert_close(log_pq.double(), expected_pq, **close)


@LEARNED
@pytest.mark.parametrize("pixels", [1, 2])
def test_gradients_against_finite_differences(spec, pixels, generator):
    module = prior_module(spec, CHANNELS, pixels, generator)
    noise, weights = normal(generator, 3, module.noise_size), normal(generator, 3, CHANNELS * pixels, 2)
    names, values = zip(*module.named_parameters(), strict=True)

    def function(*parameters):
        state = dict(zip(names, parameters, strict=True))
        precision, log_pq = torch.func.functional_call(module, state, (noise,))
        return log_pq, precision.log_det(), precision.quadratic(weights)

    module.forward = module.draw
    assert torch.autograd.gradcheck(function, values)


@LEARNED
@pytest.mark.parametrize("pixels", [1, 3])
def test_replicas_are_separate_modules(spec, pixels, generator):
    together = prior_module(spec, CHANNELS, pixels, generator, (3,))
    noise = normal(generator, 5, 3, together.noise_size)
    precision, log_pq = together.draw(noise)
    for r in range(3):
        alone = prior_module(spec, CHANNELS, pixels)
        alone.load_state_dict({name: value[r] for name, value in together.state_dict().items()})
        expected, expected_pq = alone.draw(noise[:, r])
        torch.testing.assert_close(precision.dense()[..., r, :, :], expected.dense(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(log_pq[..., r], expected_pq, rtol=1e-12, atol=1e-12)


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
