"""Grids cover what the chapters show, and what is recorded belongs to them."""

import pytest

from experiments.ober2021 import toy_hmc
from experiments.ober2021.toy import GRID
from experiments.ober2021.toy_hmc import HMCConfig
from experiments.registry import EXPERIMENTS
from experiments.runner.experiment import Job
from experiments.runner.groups import select_configs
from experiments.runner.identity import identity, record_identity
from experiments.runner.records import records_of, results_file
from tests.experiments.recorded import CPU, drawn_from_the_prior

RECORDED = 1509  # lines of `results/`; more may come, and none may be lost


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
    config = HMCConfig(burn_in=20, samples=40)
    found = toy_hmc.run(config, Job(CPU, tmp_path / "checkpoint"))
    assert seen["checkpoint"] == tmp_path / "checkpoint"
    assert found["metrics"]["diagnostics"]["draws"] == 16 and len(found["metrics"]["mean"]) == len(GRID)
