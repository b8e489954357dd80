"""The UCI experiments: grids, the search's choice, and what is measured of every replica."""

import dataclasses
import math

import pytest
import torch

import gilib
from experiments import RecordError, load_records, select
from experiments.common import uci_splits
from experiments.ober2021 import uci, uci_hmc, uci_run, uci_scale_prior
from experiments.runner.running import run_experiment
from gilib.data import load_uci
from gilib.randomness import ReplicaGenerators
from tests.experiments.recorded import CPU, JOB, drawn_from_the_prior, recorded
from tests.support import D, assert_equal


def configs(method="gi", prior="NealPrior", splits=(0, 1), **settings):
    settings = {"batch_size": 50, "num_inducing": 0 if method == "fac" else 8, "steps": 4} | settings
    return [
        uci.UciConfig("yacht", method, prior, split, 0.01, num_samples=2, test_samples=5, **settings)
        for split in splits
    ]


def test_the_best_bound_chooses_and_divergence_never_does(monkeypatch):
    scale = dataclasses.replace(uci.SCALES["smoke"], rates=(0.1, 0.2, 0.3), search_splits=1, splits=2)
    monkeypatch.setitem(uci.SCALES, "smoke", scale)
    cell = ("yacht", "gi", "NealPrior")
    trials = [t for t in uci.search("smoke") if (t.dataset, t.method, t.prior) == cell]
    assert [trial.lr for trial in trials] == [0.1, 0.2, 0.3]
    recorded("uci_search", trials[0], elbo=-2.0)
    recorded("uci_search", trials[1], elbo=-1.0)
    recorded("uci_search", dataclasses.replace(trials[2], steps=999), elbo=5.0)  # of another grid
    missing = "no search for learning rates is complete.*first run `python -m experiments run uci_search --s"
    with pytest.raises(RecordError, match=missing):
        list(uci.tables("smoke"))
    recorded("uci_search", trials[2])
    chosen = list(uci.tables("smoke"))
    assert {config.lr for config in chosen} == {0.2} and [config.split for config in chosen] == [0, 1]
    assert {(c.dataset, c.method, c.prior) for c in chosen} == {cell}


def test_a_group_shares_what_one_program_needs():
    paper = [uci.UciConfig("yacht", "gi", prior, 3, lr) for prior in uci.PRIORS for lr in (0.1, 0.2)]
    assert len({uci.group_key(config) for config in paper}) == 1
    smaller = [dataclasses.replace(config, scale="reduced") for config in paper]
    assert len({uci.group_key(config) for config in smaller}) == 3
    assert len({uci.group_key(dataclasses.replace(paper[0], batch_size=b)) for b in (32, 100)}) == 2
    long = [dataclasses.replace(paper[0], scale="long", split=split) for split in range(5)]
    assert len({uci.group_key(config) for config in long}) == 5


def test_long_is_the_papers_training_at_rates_of_the_reduced_search(kept):
    long, reduced = list(uci.tables("long")), list(uci.tables("reduced"))
    assert list(dict.fromkeys(config.dataset for config in long)) == list(uci.SETS)
    cells = {(c.dataset, c.method, c.prior): (c.lr, c.batch_size) for c in reduced}
    assert len(long) == 5 * len(cells) == 5 * len(list(uci.cells("paper")))
    paper = uci.SCALES["paper"]
    for config in long:
        assert (config.lr, config.batch_size) == cells[config.dataset, config.method, config.prior]
        fac = config.method == "fac"
        assert config.steps == (paper.fac_steps if fac else paper.steps)
        assert config.num_samples == (paper.fac_samples if fac else paper.samples)
        assert config.num_inducing == (0 if fac else paper.num_inducing)


def test_measurements_against_predict_one_split_at_a_time():
    """The same draws through `gilib.predict` with each split's own normalisation, and bounds written out."""
    data = uci_splits.load("yacht", [0, 3], CPU, D)
    net, likelihood = uci_run.build(configs(splits=(0, 3)), data, [0, 3])
    likelihood.scaled_log_variance.data += torch.tensor([0.02, -0.03])
    draw = uci_splits.drawn(net, 7, [0, 3])
    measured = uci_splits.measure(draw, likelihood, data)
    dataset = load_uci("yacht")
    for r, k in enumerate((0, 3)):
        split = dataset.split(k, D)
        sd = float(likelihood.noise_variance[r].detach()) ** 0.5
        f = draw(data.test_x)[:, r]
        means = f * split.normalisation.y_std + split.normalisation.y_mean
        mixture = torch.distributions.Normal(means, sd * split.normalisation.y_std)
        expected = (mixture.log_prob(split.test_y_raw).logsumexp(0) - math.log(7)).mean()
        assert_equal(measured["test_log_likelihood"][r].detach(), expected.detach(), 1e-8)
        error = (means.mean(0) - split.test_y_raw).square().mean().sqrt()
        assert_equal(measured["rmse"][r].detach(), error.detach(), 1e-8)
        g = draw(data.x)[:, r]
        fit = torch.distributions.Normal(g, sd).log_prob(data.y[r]).sum((-2, -1))
        bounds = (fit + draw.log_pq[:, r]).detach()
        assert_equal(measured["elbo"][r].detach(), bounds.mean() / len(split.train_x), 1e-8)
        error = bounds.std(0) / math.sqrt(7) / len(split.train_x)
        assert_equal(measured["elbo_stderr"][r].detach(), error, 1e-8)
        evidence = (bounds.logsumexp(0) - math.log(7)) / len(split.train_x)
        assert_equal(measured["iwbo"][r].detach(), evidence, 1e-8)


def test_points_are_evaluated_in_batches(monkeypatch):
    data = uci_splits.load("yacht", [0], CPU, D)
    net, likelihood = uci_run.build(configs(splits=(0,)), data, [0])
    draw = uci_splits.drawn(net, 3, [0])
    whole = uci_splits.measure(draw, likelihood, data)
    monkeypatch.setattr(uci_splits, "EVALUATED_AT_ONCE", 60)
    for name, value in uci_splits.measure(draw, likelihood, data).items():
        assert_equal(value.detach(), whole[name].detach(), 1e-10)


def test_a_diverged_replica_is_recorded_as_such():
    pair = configs(steps=60)
    wild = [pair[0], dataclasses.replace(pair[1], lr=1e6)]
    healthy, diverged = uci_run.run(wild, JOB)
    assert "diverged_at" not in healthy and healthy["metrics"]["elbo"] > -1e6
    assert diverged["metrics"] == {} and 0 <= diverged["diverged_at"] <= 60
    assert all(math.isfinite(value) for value in diverged["curve"])


def test_the_search_looks_at_no_test_data(monkeypatch):
    monkeypatch.setattr(uci_run, "measure", None)
    (record,) = uci_run.search(configs(splits=(0,)), JOB)
    assert record["metrics"].keys() == {"elbo"}


@pytest.mark.slow
def test_smoke_runs_of_everything_in_order(monkeypatch):
    """The search, the tables that need it, and the ground truth that needs the tables."""
    monkeypatch.setattr(uci_hmc, "hmc", drawn_from_the_prior)
    monkeypatch.setattr(uci_hmc, "BOUND_DRAWS", 50)
    monkeypatch.setattr(uci_hmc, "REPEATS", 2)
    short = dataclasses.replace(uci.SCALES["smoke"], fac_steps=16, steps=10)
    monkeypatch.setitem(uci.SCALES, "smoke", short)
    with pytest.raises(RecordError, match="the noise of yacht is not learned yet"):
        list(uci_hmc.chains("smoke"))
    for name in ("uci_search", "uci", "uci_scale_prior", "uci_fixed_noise", "uci_hmc"):
        assert run_experiment(name, "smoke").added > 0
    records = load_records("uci")
    assert len(records) == 2 * len(uci.METHODS) * len(uci.PRIORS)
    assert all(math.isfinite(record["metrics"]["elbo"]) for record in records)
    (own,) = select("uci", method="gi", prior="NealPrior", split=0)
    (chains,) = load_records("uci_hmc")
    assert chains["config"]["noise_variance"] == pytest.approx(own["metrics"]["noise_variance"], rel=0.01)
    assert len(chains["metrics"]["mean"]) == len(chains["metrics"]["function_sd"]) == 31
    fixed = load_records("uci_fixed_noise")
    assert {record["config"]["method"] for record in fixed} == set(uci.METHODS)
    assert all(r["metrics"]["iwbo"] > r["metrics"]["elbo"] for r in fixed)
    bounds = {(r["config"]["method"], r["config"]["learned_steps"] > 0): r["metrics"]["elbo"] for r in fixed}
    assert all(bounds[method, True] > bounds[method, False] for method in uci.METHODS)


def test_the_tight_bound_against_its_definition(monkeypatch):
    monkeypatch.setattr(uci_hmc, "BOUND_DRAWS", 5)
    monkeypatch.setattr(uci_hmc, "REPEATS", 2)
    data = uci_splits.load("yacht", [0], CPU, D)
    net, likelihood = uci_run.build(configs(splits=(0,)), data, [0])
    sd = float(likelihood.noise_variance.detach()) ** 0.5
    expected = []
    for seed in (100, 200):
        draw = uci_splits.drawn(net, 5, [seed])
        fit = torch.distributions.Normal(draw(data.x)[:, 0], sd).log_prob(data.y[0]).sum((-2, -1))
        expected.append(((fit + draw.log_pq[:, 0]).logsumexp(0) - math.log(5)).item() / data.x.shape[1])
    found = uci_hmc._bounds(net, likelihood, data)
    assert found["iwbo"] == pytest.approx(sum(expected) / 2, rel=1e-3)
    assert found["iwbo_stderr"] == pytest.approx(abs(expected[0] - expected[1]) / 2, rel=1e-2)


@pytest.mark.parametrize("variant", uci_scale_prior.VARIANTS)
def test_the_reference_codes_variance_is_the_fan_in_too_large(variant):
    """Sampled outputs have the variance of drawn functions, except where the reference code errs."""
    data = uci_splits.load("yacht", [0], CPU, D)
    base = configs("fac", "ScalePrior", splits=(0,))[0]
    config = uci_scale_prior.ScalePriorConfig(**dataclasses.asdict(base), variant=variant)
    net, _ = uci_scale_prior.build([config], data)
    first = next(iter(net.layers))
    source = ReplicaGenerators([0])
    sampled = first.estimate(None, 20_000, 3, generator=source)(data.x[:, :3]).var(0)
    drawn = first.draw(num_samples=20_000, generator=source)(data.x[:, :3]).var(0)
    factor = 7.0 if variant == "reference" else 1.0  # six inputs and the bias
    assert torch.allclose(sampled.detach(), factor * drawn.detach(), rtol=0.08)
    start = 1e-3 / (7.0 if variant != "paper" else 7.0**0.5)
    assert_equal(first.weights.log_variance.detach().exp(), torch.full((1, 7, 50), start, dtype=D), 1e-12)
    assert first.prior == gilib.ScalePrior(parameterisation="paper" if variant == "paper" else "reference")
