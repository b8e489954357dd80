"""Grids cover what the chapters show, and what is recorded belongs to them."""

import pytest

from gilib.experiments.groups import chosen
from gilib.experiments.records import identity, load_records
from gilib.experiments.registry import EXPERIMENTS
from gilib.experiments.runner import Place, run_experiment
from gilib.experiments.toy import METHODS, reproduction, table_2


@pytest.mark.parametrize("name", ["toy", "toy_inducing", "reproduction", "toy_hmc"])
def test_committed_records_are_those_of_the_grid(name, monkeypatch):
    monkeypatch.delenv("GILIB_RESULTS")
    grid = {identity(config) for config in chosen(EXPERIMENTS[name], "paper")}
    found = {record["id"] for record in load_records(name) if record["scale"] == "paper"}
    assert found and found <= grid


def test_paper_grids_cover_what_the_chapters_show():
    table = list(table_2("paper"))
    assert {config.method for config in table} == set(METHODS)
    assert {config.seed for config in table} == set(range(10))
    assert all(config.steps == 5000 and config.num_samples == 10 for config in table)
    sweep = list(reproduction("paper"))
    assert len({config.prior_scale for config in sweep if config.seed == 0}) == 12
    assert {config.num_inducing for config in sweep} == {1, 2, 5, *range(10, 101, 10)}


def test_the_toy_experiment_runs_at_smoke_scale():
    wanted = ["method=gi", "normalise=True"]
    assert run_experiment("toy", "smoke", Place("cpu"), only=wanted).added == 1
    (record,) = load_records("toy")
    assert record["config"]["num_points"] == 40 and len(record["data"]["sha256"]) == 64
    assert record["metrics"]["elbo"] > -1e6 and len(record["curve"]) == 50
