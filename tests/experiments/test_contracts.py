"""What every experiment keeps to: grids, records, smoke runs, pauses, divergence, replicas, data."""

import contextlib
import dataclasses
from collections import Counter

import pytest
import torch

from experiments import RecordError, load_records, report
from experiments.common import uci_splits
from experiments.comparisons import defaults, posteriors_images, tasks
from experiments.comparisons.posteriors import PosteriorConfig
from experiments.kurle2024.search import search
from experiments.lindinger2020.uci import StructuredConfig
from experiments.ober2021 import depth, dgp_toy, dgp_uci, toy, toy_hmc, uci
from experiments.registry import EXPERIMENTS
from experiments.report import RULES
from experiments.runner.experiment import Job
from experiments.runner.groups import make_groups, select_configs
from experiments.runner.identity import identity, record_identity
from experiments.runner.records import records_of, results_file
from experiments.runner.running import RunSummary, run_experiment
from gilib.data import DataError
from gilib.training import Paused
from tests.experiments.recorded import CPU, JOB, drawn_from_the_prior

RECORDED = 1509  # lines of `results/`; more may come, and none may be lost


def grids(name):
    """The grids of an experiment by scale, but for those that need records which nobody has."""
    found = {}
    for scale in EXPERIMENTS[name].scales:
        with contextlib.suppress(RecordError):
            found[scale] = list(EXPERIMENTS[name].configurations(scale))
    return found


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_grid_has_every_cell_once_and_groups_have_every_cell(name, kept):
    assert (found := grids(name))
    for scale, grid in found.items():
        assert len(set(grid)) == len(grid) and {config.scale for config in grid} <= {scale}
        groups = make_groups(EXPERIMENTS[name], grid)
        assert Counter(config for group in groups for config in group) == Counter(grid)


def test_every_printed_number_that_a_rule_answers_is_in_the_largest_grid(kept):
    cells, missing = {}, []
    for claim in report.claims():
        rule = RULES.get(claim.file)
        settings = rule.settings(claim) if rule and claim.metric in rule.metrics else {"": None}
        if None in settings.values():
            continue
        if rule.experiment not in cells:
            *_, cells[rule.experiment] = grids(rule.experiment).values()
        settings.pop("outside", None)  # which set is out of the distribution depends on this machine
        wanted = settings.items()
        if not any(all(getattr(c, key) == v for key, v in wanted) for c in cells[rule.experiment]):
            missing.append((claim.file, settings))
    assert missing == []


STRUCTURED = [f"structured_{name}" for name in ("convergence", "covariance", "chains", "runtime")]
SMOKE = dict.fromkeys(["depth", "dgp_toy", *STRUCTURED], []) | {
    "dgp_uci": ["split=0"],
    "dgp_start": ["split=0"],
    "dgp_attempts": ["split=0", "num_inducing=10", "method=gi"],
    "structured_uci": ["task=extrapolation", "repetition=0"],
}


@pytest.mark.parametrize("name", SMOKE)
def test_a_smoke_run_records_its_grid_once(name):
    """With numbers that are finite, or a training would count as diverged, and bounds in their order."""
    grid = select_configs(EXPERIMENTS[name], "smoke", SMOKE[name])
    assert run_experiment(name, "smoke", only=SMOKE[name]) == RunSummary(len(grid), 0, 0)
    for metrics in (record["metrics"] for record in load_records(name)):
        assert metrics.get("elbo", 0.0) < metrics.get("iwbo", metrics.get("evidence", torch.inf))
        assert metrics.get("elbo_stderr", 1.0) >= 0.0


SMALL = {"num_inducing": 6, "steps": 4, "test_samples": 5}
SHORT = SMALL | {"elbo_samples": 5, "hidden_scale": 0.1}


def structured(method, depth):
    settings = SHORT | {"steps": 30, "stop_after": 10}
    return StructuredConfig("boston", "extrapolation", 0, method, depth, **settings)


PAUSED = {
    "depth": depth.DepthConfig("gi", 4, 2, steps=5, elbo_samples=5),
    "dgp_toy": dgp_toy.DgpToyConfig("gi", 0, num_inducing=6, steps=4, num_samples=2, samples=20),
    "dgp_uci": dgp_uci.DgpConfig("yacht", "gi", 2, 0, **SHORT),
    "uci": uci.UciConfig("yacht", "gi", "NealPrior", 0, 0.01, num_samples=2, batch_size=50, **SMALL),
    "structured_uci, star": structured("star", 3),
    "structured_uci, gi": structured("gi", 3),
    "structured_uci, sghmc": structured("sghmc", 3),
    "structured_uci, fc_ng": structured("fc_ng", 2),
}


@pytest.mark.parametrize("name", PAUSED)
def test_a_training_is_resumed_where_it_was_paused(name, tmp_path):
    """A pause changes nothing but the clock: neither metrics nor curve."""
    run, config = EXPERIMENTS[name.split(",")[0]].run, PAUSED[name]
    (straight,) = run([config], Job(CPU, tmp_path / "one"))
    with pytest.raises(Paused):
        run([config], Job(CPU, tmp_path / "two", deadline=0.0))
    (resumed,) = run([config], Job(CPU, tmp_path / "two"))
    for record in (straight, resumed):
        record["metrics"].pop("train_seconds", None)
    assert resumed == straight


WILD = {
    "depth": depth.DepthConfig("fac", 5, 3, steps=20, lr=1e6, elbo_samples=2),
    "dgp_uci": dataclasses.replace(PAUSED["dgp_uci"], steps=30, lr=1e6),
    "posteriors": PosteriorConfig("yacht", "vogn", 0, 1e12, steps=40, batch_size=100, test_samples=5),
}


@pytest.mark.parametrize("name", WILD)
def test_a_training_that_breaks_down_is_recorded_as_such(name):
    (record,) = EXPERIMENTS[name].run([WILD[name]], JOB)
    assert record["metrics"] == {} and 0 <= record["diverged_at"] <= WILD[name].steps
    assert torch.tensor(record.get("curve", [])).isfinite().all()


def pairs():
    """Two configurations each that train together: another split or seed, or another setting."""
    replace = dataclasses.replace
    yield "depth", [depth.DepthConfig("fac_gi", 4, 3, seed, steps=5, elbo_samples=10) for seed in (0, 1)]
    yield "bali_search", [trial for trial in search("smoke") if trial.settings.prior == "relative"]
    for method in dgp_uci.METHODS:
        yield "dgp_uci", [replace(PAUSED["dgp_uci"], method=method, split=k) for k in (0, 1)]
    for method in uci.METHODS:
        points = 0 if method == "fac" else 6
        one = replace(PAUSED["uci"], method=method, num_inducing=points)
        yield "uci", [replace(one, split=k) for k in (0, 1)]


@pytest.mark.parametrize(("name", "pair"), [*pairs()])
def test_a_replica_is_measured_as_it_would_be_alone(name, pair):
    """Sums of float32 in another order, hence the tolerance."""
    experiment = EXPERIMENTS[name]
    assert len(pair) == 2 and len(make_groups(experiment, pair)) == 1
    together, (alone,) = experiment.run(pair, JOB), experiment.run(pair[1:], JOB)
    assert together[1]["metrics"].keys() == alone["metrics"].keys()
    assert together[0]["metrics"] != together[1]["metrics"]
    for metric, value in alone["metrics"].items():
        found = torch.tensor(together[1]["metrics"][metric])
        assert torch.allclose(found, torch.tensor(value), rtol=2e-3), metric


@pytest.mark.parametrize(
    ("module", "load", "check", "config"),
    [
        (uci_splits, "load_uci", uci_splits.check, dataclasses.replace(PAUSED["uci"], dataset="kin8nm")),
        (tasks, "load_classification", tasks.check, defaults.DefaultsConfig("telescope", defaults.BASE, 0)),
        (tasks, "load_images", posteriors_images.check, PosteriorConfig("mnist", "map", 0, images=50)),
    ],
)
def test_missing_data_stop_everything_before_it_begins(module, load, check, config, monkeypatch):
    def missing(name):
        raise DataError(f"{name} is not on this machine")

    monkeypatch.setattr(module, load, missing)
    tasks._table.cache_clear()
    with pytest.raises(DataError, match=f"{config.dataset} is not on this machine"):
        check([config])


def current(record, grid):
    """The record; one of an earlier edition, or not on fresh points, as that which is in the grid."""
    own = record["config"]
    for config in (config for config in grid if hasattr(config, "edition")):
        if (config.dataset, config.method) == (own["dataset"], own["method"]):
            return {**record, "config": own | {"edition": config.edition, "fresh": config.fresh}}
    return record


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_committed_records_are_those_of_the_grid(name, kept):
    records, kind = records_of(name), EXPERIMENTS[name].config
    assert records, "not recorded"
    for scale in {record["scale"] for record in records}:
        grid = {identity(name, config): config for config in select_configs(EXPERIMENTS[name], scale)}
        for record in (record for record in records if record["scale"] == scale):
            known = record_identity(current(record, grid.values()), kind)
            assert known in grid, "in no grid"
            assert record["id"] == record_identity(record, kind), "changed by hand"


def test_no_committed_record_is_lost(kept):
    texts = (path.read_text() for path in map(results_file, EXPERIMENTS) if path.exists())
    assert sum(text.count("\n") for text in texts) >= RECORDED


def test_chains_are_recorded_like_trainings(tmp_path, monkeypatch):
    seen = {}

    def sampled(*arguments, **options):
        seen.update(options)
        return drawn_from_the_prior(*arguments, **options)

    monkeypatch.setattr(toy_hmc, "hmc", sampled)
    config = toy_hmc.HMCConfig(burn_in=20, samples=40)
    found = toy_hmc.run(config, Job(CPU, tmp_path / "checkpoint"))
    assert seen["checkpoint"] == tmp_path / "checkpoint"
    assert found["metrics"]["diagnostics"]["draws"] == 16 and len(found["metrics"]["mean"]) == len(toy.GRID)
