"""Hamiltonian Monte Carlo against closed forms, and the model in JAX against the model in torch."""

import dataclasses
import itertools
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from gilib import NealPrior, ScalePrior, StandardPrior
from gilib.baselines import HMCSettings, StuckChainError, effective_sample_size, hmc, sampling
from gilib.baselines import hamiltonian as module
from gilib.persistence import CheckpointError
from gilib.training import Paused

pytestmark = pytest.mark.slow

jax = pytest.importorskip("jax", reason="the extra hmc is not installed")
pytest.importorskip("numpyro", reason="the extra hmc is not installed")

WIDTHS = (2, 7, 5, 2)


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """Chains of the same shape share what was compiled for the first of them."""
    options = {"jax_compilation_cache_dir": str(tmp_path_factory.mktemp("jax"))}
    options |= {"jax_persistent_cache_min_compile_time_secs": 0.0}
    options |= {"jax_persistent_cache_min_entry_size_bytes": -1}
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def data(widths, points=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = widths[0], widths[-1]
    return tuple(torch.randn(points, size, generator=generator, dtype=torch.float64) for size in sizes)


def random_weights(widths, seed=1, lead=()):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(*lead, a + 1, b) for a, b in zip(widths, widths[1:], strict=False)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def torch_forward(weights, x):
    for k, layer in enumerate(weights):
        x = torch.cat([x.clamp(min=0.0) if k else x, torch.ones(*x.shape[:-1], 1, dtype=x.dtype)], -1) @ layer
    return x


def torch_log_joint(weights, x, y, noise_variance, deviations):
    noise = torch.tensor(noise_variance, dtype=torch.float64).sqrt()
    value = Normal(torch_forward(weights, x), noise).log_prob(y).sum((-2, -1))
    for layer, deviation in zip(weights, deviations, strict=True):
        prior = Normal(torch.zeros_like(layer), torch.full_like(layer, deviation))
        value = value + prior.log_prob(layer).sum((-2, -1))
    return value


@pytest.mark.parametrize("prior", [NealPrior(), NealPrior(scale=1.7), StandardPrior()])
def test_jax_and_torch_have_the_same_joint_density(prior):
    x, y = data(WIDTHS)
    neal = isinstance(prior, NealPrior)
    deviations = [prior.scale / math.sqrt(size) if neal else 1.0 for size in (3, 8, 6)]
    weights = random_weights(WIDTHS)
    expected = torch_log_joint(weights, x, y, 0.3, deviations)
    with jax.enable_x64(True):
        density = module.log_joint(x.numpy(), y.numpy(), 0.3, module.prior_scales(WIDTHS, prior))
        found = density([layer.numpy() for layer in weights])
        assert found.dtype == "float64"
    assert float(found) == pytest.approx(float(expected), rel=1e-13, abs=1e-10)


SIZES = {"step_size_burn_in": 0.1, "step_size": 0.15, "leapfrog_steps": 10}
ONE_LAYER = HMCSettings(burn_in=500, samples=4000, thin=4, **SIZES)


@pytest.fixture(scope="module")
def regression():
    """A Bayesian linear regression: 4 chains, each state nearly independent of the one before."""
    x, y = data((2, 1), points=12)
    return x, y, hmc((2, 1), x, y, 0.5, NealPrior(scale=1.3), ONE_LAYER, progress=False)


def test_linear_regression_matches_the_closed_form(regression):
    x, y, chains = regression
    features = torch.cat([x, torch.ones(12, 1, dtype=x.dtype)], 1)
    precision = features.T @ features / 0.5 + 3.0 / 1.3**2 * torch.eye(3, dtype=x.dtype)
    covariance = precision.inverse()
    mean = covariance @ features.T @ y / 0.5
    centred = chains.weights[0][..., 0] - mean[:, 0]  # [chains, kept, I]
    products = centred[..., :, None] * centred[..., None, :] - covariance
    for moments in (centred, products.flatten(2)):
        effective = effective_sample_size(moments)
        error = moments.flatten(0, 1).std(0) / effective.sqrt()
        assert (effective > 1000).all()
        assert (moments.mean((0, 1)).abs() < 6.0 * error).all()


def test_every_phase_reports_its_acceptance(regression):
    _, _, chains = regression
    for acceptance in (chains.acceptance, chains.acceptance_burn_in):
        assert acceptance.shape == (4,)
        assert ((acceptance > 0.5) & (acceptance < 1.0)).all()
    assert (chains.acceptance != chains.acceptance_burn_in).all()
    assert chains.seconds > 0.0


def test_a_chain_that_never_moves_is_an_error(regression):
    x, y, _ = regression
    settings = dataclasses.replace(ONE_LAYER, burn_in=5, step_size_burn_in=1e3)
    with pytest.raises(StuckChainError, match="4 of 4 chains accepted none of 5 proposals of the burn-in"):
        hmc((2, 1), x, y, 0.5, NealPrior(scale=1.3), settings, progress=False)


# one chain, in scaled coordinates; the trajectories of a standard normal have the period 2π
TURN = HMCSettings(
    burn_in=0, thin=1, chains=1, coordinates="scaled", seed=3, leapfrog_steps=21, step_size=math.tau / 21
)
NOTHING = torch.zeros(0, 3), torch.zeros(0, 1)


def test_a_whole_turn_ends_where_it_began():
    """At a draw of the prior, but for what twenty leapfrog trajectories miss; acceptance does not tell."""
    settings = dataclasses.replace(TURN, samples=20)
    chains = hmc((3, 8, 1), *NOTHING, 1.0, settings=settings, progress=False)
    assert [layer.shape for layer in chains.weights] == [(1, 20, 4, 8), (1, 20, 9, 1)]
    assert chains.log_joint.shape == (1, 20) and chains.acceptance.shape == (1,)
    assert chains.acceptance.min() > 0.9 and chains.acceptance_burn_in.isnan().all()
    start = np.random.default_rng(3).standard_normal((4, 8)) / 2
    gap = chains.weights[0][0].numpy() - start
    assert abs(gap).max() < 0.5 and abs(gap).mean() < 0.1  # deviations 0.5, far from 0 after other lengths


def test_without_data_a_jitter_samples_the_prior():
    settings = dataclasses.replace(TURN, samples=5000, jitter=0.3)
    chains = hmc((3, 8, 1), *NOTHING, 1.0, settings=settings, progress=False)
    assert (effective_sample_size(chains.weights[0].flatten(2)) > 1000).all()
    for layer, fan_in in zip(chains.weights, (4, 9), strict=True):
        squares = layer.double().square().mean((-2, -1))  # [chains, kept]
        error = squares.std() / effective_sample_size(squares).sqrt()
        assert abs(float(squares.mean()) - 1.0 / fan_in) < 6.0 * float(error)
        assert layer.dtype == torch.float32


SHORT = {"burn_in": 7, "samples": 16, "thin": 3, "chains": 2, "leapfrog_steps": 3, "jitter": 0.3}
DEEP = HMCSettings(step_size_burn_in=0.03, step_size=0.03, coordinates="scaled", **SHORT)


def sample(noise_variance=0.3, **options):
    x, y = data((2, 3, 2))
    return hmc((2, 3, 2), x, y, noise_variance, settings=DEEP, progress=False, **options)


@pytest.fixture(scope="module")
def whole():
    return sample()


def test_kept_states_carry_their_joint_density(whole):
    x, y = data((2, 3, 2))
    assert [layer.shape for layer in whole.weights] == [(2, 5, 3, 3), (2, 5, 4, 2)]
    deviations = [layer.shape[-2] ** -0.5 for layer in whole.weights]
    expected = torch_log_joint(whole.weights, x, y, 0.3, deviations)
    torch.testing.assert_close(whole.log_joint, expected, rtol=1e-12, atol=1e-9)


def test_paused_chains_go_on_where_they_were(whole, tmp_path, monkeypatch):
    """And chains in pieces are those of one piece."""
    monkeypatch.setattr(sampling, "PIECES", 2)
    clock = SimpleNamespace(monotonic=itertools.count().__next__, perf_counter=time.perf_counter)
    monkeypatch.setattr(sampling, "time", clock)  # a second from one checkpoint to the next
    path, pauses = tmp_path / "chains", []
    for deadline in (-0.5, 1.5, 2.5):
        with pytest.raises(Paused) as pause:
            sample(checkpoint=path, deadline=deadline)
        pauses.append(torch.load(path))
    assert [(saved["phase"], saved["done"]) for saved in pauses] == [(0, 3), (1, 7), (1, 16)]
    assert str(path) in str(pause.value)
    found = sample(checkpoint=path, deadline=0.0)  # nothing is left to do
    for name in ("log_joint", "acceptance", "acceptance_burn_in"):
        torch.testing.assert_close(getattr(found, name), getattr(whole, name))
    for pieces, wanted in zip(found.weights, whole.weights, strict=True):
        torch.testing.assert_close(pieces, wanted)
    assert found.seconds == pauses[-1]["seconds"] > pauses[0]["seconds"]
    with pytest.raises(CheckpointError, match="belongs to other data or settings"):
        sample(noise_variance=0.4, checkpoint=path)


@pytest.mark.parametrize("start", ["prior", "normal"])
@pytest.mark.parametrize("coordinates", ["weights", "scaled"])
def test_starts_lie_where_the_settings_say(coordinates, start):
    scale = 0.5 if (coordinates, start) == ("weights", "prior") else 1.0
    settings = HMCSettings(chains=2, seed=4, coordinates=coordinates, start=start)
    target = sampling.Target(lambda weights: 0.0, [0.5], coordinates == "scaled")
    (position,) = sampling.Sampler(target, settings, progress=False)._start((3, 5))
    expected = scale * np.random.default_rng(4).standard_normal((2, 4, 5))
    np.testing.assert_allclose(position, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"widths": (2,)}, ValueError, "at least inputs and outputs"),
        ({"x": torch.zeros(4, 3)}, ValueError, r"x must have shape \[points, 2\]"),
        ({"y": torch.zeros(4)}, ValueError, r"y must have shape \[points, 1\]"),
        ({"y": torch.zeros(3, 1)}, ValueError, "same number of points, got 4 and 3"),
        ({"x": torch.full((4, 2), torch.inf)}, ValueError, "x holds 8 NaN or infinite"),
        ({"prior": ScalePrior()}, TypeError, "fixed prior variances .* got ScalePrior"),
        ({"prior": NealPrior}, TypeError, r"write NealPrior\(\)"),
        ({"deadline": 0.0}, ValueError, "a deadline needs a checkpoint"),
    ],
)
def test_bad_arguments_are_refused(change, error, message):
    arguments = {"widths": (2, 1), "x": torch.zeros(4, 2), "y": torch.zeros(4, 1), "noise_variance": 1.0}
    with pytest.raises(error, match=message):
        hmc(**{**arguments, **change})


def test_phases_have_keys_of_their_own(monkeypatch):
    """With one key the sampling would repeat the momenta of the burn-in."""
    keys = []

    def phase(self, key, standing):
        keys.append(key)
        standing.energies = [torch.zeros(1, 0)]

    monkeypatch.setattr(sampling.Sampler, "_phase", phase)
    target = sampling.Target(lambda weights: 0.0, [1.0], False)
    sampling.Sampler(target, HMCSettings(), progress=False).run((1, 1))
    assert len(keys) == 2 and keys[0] != keys[1]
