"""Chains made by hand: drawing, predicting, thinning, files, summaries. No sampler is run."""

import json
from dataclasses import asdict
from importlib.util import find_spec

import pytest
import torch

import gilib
from gilib import optional
from gilib.baselines import Chains, HMCSettings, effective_sample_size, split_r_hat

by_numpyro = pytest.mark.skipif(find_spec("numpyro") is None, reason="the extra hmc is not installed")
GRID = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)[:, None]


@pytest.fixture
def chains():
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 12, 2, 4), (2, 12, 5, 2)
    return Chains(
        weights=tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes),
        log_joint=torch.randn(2, 12, generator=generator, dtype=torch.float64),
        acceptance=torch.tensor([0.9, 0.8], dtype=torch.float64),
        acceptance_burn_in=torch.full((2,), torch.nan, dtype=torch.float64),
        noise_variance=0.25,
        seconds=1.5,
        settings=HMCSettings(burn_in=0, samples=24, thin=2, chains=2),
    )


def functions(chains, x):
    hidden = (x @ chains.weights[0][..., :1, :] + chains.weights[0][..., 1:, :]).clamp(min=0.0)
    return hidden @ chains.weights[1][..., :4, :] + chains.weights[1][..., 4:, :]


def test_a_draw_is_all_states_in_order(chains):
    draw = chains.draw()
    assert isinstance(draw, gilib.Draw)
    torch.testing.assert_close(draw(GRID), functions(chains, GRID).flatten(0, 1), rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(chains.evaluate(GRID), functions(chains, GRID), rtol=1e-14, atol=1e-14)


def test_predictions_are_mixtures_over_all_states(chains):
    prediction = gilib.predict(chains, chains.likelihood, GRID, chains.num_draws, batch_size=4)
    values = functions(chains, GRID).flatten(0, 1)
    torch.testing.assert_close(prediction.means, values, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(prediction.mean, values.mean(0))
    torch.testing.assert_close(prediction.sd, (values.var(0, correction=0) + 0.25).sqrt())


def test_chains_are_samples_of_a_network(chains):
    net = chains.network()
    assert isinstance(chains, gilib.prediction.Drawable) and isinstance(
        chains.samples, gilib.prediction.Samples
    )
    assert (chains.input_shape, chains.output_shape, chains.replicas) == ((1,), (2,), ())
    assert chains.samples.num_states == chains.num_draws == 24
    assert [p.shape for p in net.parameters()] == [layer.shape[2:] for layer in chains.weights]


def test_thinning_keeps_every_third_state(chains):
    thinned = chains.thinned(3)
    torch.testing.assert_close(thinned.log_joint, chains.log_joint[:, 2::3], rtol=0.0, atol=0.0)
    torch.testing.assert_close(thinned.evaluate(GRID), functions(chains, GRID)[:, 2::3])
    assert thinned.settings.kept == thinned.log_joint.shape[1] == 4
    assert chains.thinned(5).settings.kept == chains.thinned(5).log_joint.shape[1] == 2
    with pytest.raises(ValueError, match="thinning by 13 leaves none"):
        chains.thinned(13)


def test_a_file_gives_the_same_chains_back(chains, tmp_path):
    path = tmp_path / "chains.pt"
    chains.save(path)
    loaded = Chains.load(path)
    assert torch.equal(loaded.draw()(GRID), chains.draw()(GRID))
    assert torch.equal(loaded.log_joint, chains.log_joint)
    assert torch.equal(loaded.acceptance, chains.acceptance)
    assert loaded.acceptance_burn_in.isnan().all()
    assert (loaded.settings, loaded.seconds, loaded.noise_variance) == (chains.settings, 1.5, 0.25)


def test_other_files_are_refused(chains, tmp_path):
    gilib.persistence.write(tmp_path / "other.pt", {"format": "something else"})
    with pytest.raises(gilib.persistence.CheckpointError, match="holds 'something else', wanted 'gilib"):
        Chains.load(tmp_path / "other.pt")
    settings = asdict(chains.settings) | {"kernel": "unknown"}
    gilib.persistence.write(tmp_path / "newer.pt", {"format": "gilib chains 1", "settings": settings})
    with pytest.raises(gilib.persistence.CheckpointError, match="does not describe chains .*kernel"):
        Chains.load(tmp_path / "newer.pt")


@by_numpyro
def test_a_summary_is_plain_and_true(chains):
    summary = json.loads(json.dumps(chains.summary(GRID, quantiles=(0.1, 0.5), states=10), allow_nan=False))
    prediction = gilib.predict(chains, chains.likelihood, GRID, 24)
    found = [*(summary[name] for name in ("mean", "sd", "function_sd")), summary["quantiles"]["0.1"]]
    wanted = prediction.mean, prediction.sd, prediction.function_sd, prediction.quantile(0.1)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours == pytest.approx(theirs.flatten().tolist(), rel=1e-5, abs=1e-9)
    assert summary["log_joint"] == pytest.approx(chains.log_joint.flatten()[::3].tolist(), rel=1e-5)
    assert summary["settings"]["samples"] == 24 and summary["acceptance_burn_in"] is None
    assert summary["diagnostics"]["draws"] == 24 and len(summary["diagnostics"]["r_hat"]) == 12


@by_numpyro
def test_r_hat_sees_chains_that_disagree():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(4, 1000, 2, generator=generator, dtype=torch.float64)
    values[0, :, 1] += 3.0
    r_hat = split_r_hat(values)
    halves = values.unflatten(1, (2, 500)).flatten(0, 1)  # [8, 500, 2]
    within = halves.var(1).mean(0)
    expected = ((within * 499 / 500 + halves.mean(1).var(0)) / within).sqrt()
    torch.testing.assert_close(r_hat, expected, rtol=1e-12, atol=0.0)
    assert r_hat[0] < 1.01 and r_hat[1] > 1.5


@by_numpyro
def test_effective_sizes_of_an_autoregression_match_theory():
    """x' = ρ x + noise is worth (1 - ρ)/(1 + ρ) draws per state; good to 15 % at this length."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 10_000, generator=generator, dtype=torch.float64)
    values, state = [], noise[:, 0]
    for step in noise.unbind(1):
        state = 0.8 * state + 0.6 * step
        values.append(state)
    effective = float(effective_sample_size(torch.stack(values, 1)))
    assert effective == pytest.approx(40_000 * 0.2 / 1.8, rel=0.15)


def test_short_chains_have_no_diagnostics(chains):
    for diagnostic in (split_r_hat, effective_sample_size):
        with pytest.raises(ValueError, match=r"at least 4 of them kept, got \[2, 2\]"):
            diagnostic(chains.thinned(6).log_joint)


def test_a_missing_extra_is_named(chains, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(optional, "import_module", missing)
    with pytest.raises(ImportError, match=r"numpyro is needed .* -e '.\[hmc\]'"):
        chains.diagnostics(GRID)
    with pytest.raises(ImportError, match=r"jax is needed .* -e '.\[hmc\]'"):
        gilib.baselines.hmc((1, 1), torch.zeros(2, 1), torch.zeros(2, 1), 1.0)
    assert chains.draw(3)(GRID).shape == (3, 6, 2)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="samples must be an integer of at least 10, got 5"):
        HMCSettings(samples=5)
