"""Every posterior on the same splits: grids, choices, and one smoke run of each method."""

import dataclasses
import math

import pytest
import torch

import gilib
from experiments import RecordError, load_records, plots
from experiments.comparisons import measures, posteriors, posteriors_run
from experiments.comparisons.methods import METHODS
from experiments.comparisons.posteriors import ORDER, SEARCHED, PosteriorConfig
from experiments.comparisons.tasks import Task
from experiments.kurle2024 import search
from experiments.kurle2024.search import BaliSettings
from experiments.runner.running import run_experiment
from tests.experiments.recorded import JOB, drawn_from_the_prior, recorded


@pytest.fixture
def searched():
    """Searches in which the second setting of every method is the best, and the last of BALI's."""
    for trial in posteriors.search("smoke"):
        away = abs(SEARCHED[trial.method].index(trial.setting) - 1)
        recorded("posteriors_search", trial, log_likelihood=-float(away))
    for k, trial in enumerate(search.search("smoke")):
        recorded("bali_search", trial, validation_log_likelihood=float(k))


def test_every_method_is_built_trained_chosen_and_drawn_in_a_colour_of_its_own():
    assert set(ORDER) == {*METHODS, "hmc"} and len(set(ORDER)) == len(ORDER)
    kinds = (SEARCHED, posteriors.FOLLOWS, posteriors.BALI, {"hmc": 0})
    assert sorted(name for kind in kinds for name in kind) == sorted(ORDER)
    assert set(ORDER) <= set(plots.METHODS)


def test_tables_need_both_searches(searched, results):
    assert len(list(posteriors.tables("smoke"))) == len(METHODS)
    for name in ("posteriors_search", "bali_search"):
        path, whole = results / f"{name}.jsonl", (results / f"{name}.jsonl").read_text()
        path.write_text(whole[: whole.rindex("\n", 0, -1) + 1])  # without the last
        with pytest.raises(RecordError, match=f"run {name} --scale smoke"):
            list(posteriors.tables("smoke"))
        path.write_text(whole)


def test_the_best_validation_score_chooses_others_follow_and_chains_take_the_noise(searched):
    found = posteriors.chosen_settings("smoke")
    assert all(found[name] == values[1] for name, values in SEARCHED.items())
    assert found["ensemble"] == found["laplace"] == found["map"]
    bali = {c.method: c.bali for c in posteriors.tables("smoke") if c.bali}
    assert {name: own.prior for name, own in bali.items()} == posteriors.BALI
    assert {own.v0 for own in bali.values()} == {3.0}
    assert "hmc" not in {config.method for config in posteriors.tables("smoke")}
    (gi,) = (config for config in posteriors.tables("smoke") if config.method == "gi")
    recorded("posteriors", gi, noise_variance=0.0123456)
    (hmc,) = (config for config in posteriors.tables("smoke") if config.method == "hmc")
    assert (hmc.setting, hmc.dataset, hmc.split) == (0.0123, "yacht", 0)
    assert posteriors_run.step_size(hmc) == pytest.approx(0.05 * 0.0123**0.5, rel=5e-3)


def sampled(widths, x, y, noise_variance, prior, settings, **options):
    """Draws from the prior in place of chains, which have the data and the prior of all others."""
    on = posteriors_run.task("yacht", 0, torch.float64)
    assert torch.equal(x, on.x) and torch.equal(y, on.y)
    assert prior == gilib.NealPrior(math.sqrt(posteriors.PRIOR_VARIANCE))
    return drawn_from_the_prior(widths, x, y, noise_variance, gilib.NealPrior(), settings, **options)


@pytest.mark.slow
def test_every_method_runs_and_beats_predicting_the_mean(searched, monkeypatch):
    """At smoke scale; inducing points and processes have hardly moved in so few steps, and are excused."""
    monkeypatch.setattr(posteriors_run, "hmc", sampled)
    assert run_experiment("posteriors", "smoke").added == len(METHODS)
    assert run_experiment("posteriors", "smoke").added == 1  # the chains, once the noise is known
    found = {r["config"]["method"]: r for r in load_records("posteriors")}
    assert list(found) == list(ORDER)
    constant = 15.0  # about the standard deviation of the targets
    for name, own in found.items():
        assert all(math.isfinite(value) for value in own["metrics"].values()), name
        assert ("elbo" in own["metrics"]) == (name != "hmc" and METHODS[name].bound), name
        assert ("log_evidence" in own["metrics"]) == (name == "laplace"), name
        if name not in (*posteriors.INDUCING, *posteriors.PROCESSES, "hmc"):
            assert own["metrics"]["rmse"] < 0.8 * constant, name
        assert len(own["test_points"]["sd"]) == 31
    apart = measures.distances(list(found.values()))
    assert set(apart) == {("yacht", 0, name) for name in METHODS}
    assert apart["yacht", 0, "map"] >= 1.0  # a function without deviation is that far at least


def test_the_search_reads_no_test_data(monkeypatch):
    monkeypatch.setattr(posteriors_run, "task", None)
    trial = next(posteriors.search("smoke"))
    found = posteriors_run.search(dataclasses.replace(trial, steps=3), JOB)
    assert found["metrics"]["log_likelihood"] < 0.0


def test_a_training_with_bali_has_the_prior_of_its_settings():
    settings = BaliSettings("relative", 7.0, 0.3, 0.2)
    config = PosteriorConfig("yacht", "bali_paper", 0, bali=settings)
    x, y, one = torch.zeros(30, 6), torch.zeros(30, 1), torch.ones(())
    net = METHODS["bali_paper"].network(config, Task({}, x, y, x, y, None, one))
    scales = [layer.prior.scale for layer in net.modules() if isinstance(layer, gilib.Linear)]
    assert scales == [pytest.approx(7.0**0.5)] * 2
    rule = METHODS["bali_paper"].rule(config)
    assert (rule.prior, rule.lr, rule.update_rate) == ("relative", 0.3, 0.2)
