"""What runs on a borrowed machine: the plan in order, records left where asked, nothing else changed."""

import pytest

import accelerator
from experiments.registry import EXPERIMENTS
from experiments.runner.groups import select_configs
from experiments.runner.records import read_records, results_directory
from tests.experiments.tiny import TINY


def test_cells_that_cost_least_come_first_and_all_filters_match_something():
    plan = list(accelerator.plan())
    assert [name for name, _, _ in plan] == ["dgp_uci"] * 4 + ["uci", "cifar10"]
    wanted = [select_configs(EXPERIMENTS[name], scale, only) for name, scale, only in plan]
    assert {config.depth for config in wanted[0]} == {2} and len(wanted[0]) == 5 * 3 * 20
    (image,) = wanted[-1]
    assert image.method == "gi" and image.prior == "SpatialIWPrior (reference)"


def test_a_dry_run_adds_to_a_copy_of_the_records(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GILIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(accelerator, "plan", lambda: [("uci", "long", []), ("tiny", "paper", [])])
    monkeypatch.setitem(EXPERIMENTS, "tiny", TINY)
    results_directory().mkdir()
    out = tmp_path / "out"
    accelerator.main(["--out", str(out), "--dry", "--jobs", "1", "--minutes", "2"])
    assert [file.name for file in out.glob("*.jsonl")] == ["tiny.jsonl"]
    assert len(read_records(out / "tiny.jsonl")) == 6
    assert not list((tmp_path / "results").iterdir())


def test_no_accelerator_is_an_error_before_anything_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(accelerator.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device was found"):
        accelerator.main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
