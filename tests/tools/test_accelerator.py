"""What runs on a borrowed machine: the plan in order, records left where asked, nothing else changed."""

from pathlib import Path

import pytest

import accelerator
from gilib.experiments.registry import EXPERIMENTS
from gilib.experiments.runner.groups import chosen
from gilib.experiments.runner.records import read_records, results_directory


def test_small_sets_come_first_and_a_search_before_its_tables() -> None:
    plan = list(accelerator.plan("paper"))
    assert plan[:3] == [
        ("uci_search", ["dataset=yacht"]),
        ("uci", ["dataset=yacht"]),
        ("uci_search", ["dataset=boston"]),
    ]
    assert plan[18] == ("depth", []) and len(plan) == 29


def test_parts_can_be_chosen_and_their_filters_match_something() -> None:
    plan = list(accelerator.plan("paper", ["images"]))
    assert [name for name, _ in plan] == ["cifar10", "mnist_500", "cifar10"]
    (first,) = chosen(EXPERIMENTS["cifar10"], "paper", plan[0][1])
    assert first.method == "gi" and first.prior == "SpatialIWPrior (reference)"
    assert list(accelerator.plan("paper", ["depth"])) == [("depth", [])]
    structured = [name for name, _ in accelerator.plan("paper", ["structured"])]
    assert structured == ["structured_covariance", "structured_convergence", "structured_uci"]


def test_a_smoke_run_adds_to_a_copy_of_the_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GILIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(
        accelerator, "plan", lambda scale, parts: [("uci", []), ("toy_inducing", ["num_inducing=2"])]
    )
    results_directory().mkdir()
    out = tmp_path / "out"
    accelerator.main(["--out", str(out), "--scale", "smoke", "--device", "cpu", "--minutes", "2"])
    assert [file.name for file in out.glob("*.jsonl")] == ["toy_inducing.jsonl"]
    assert len(read_records(out / "toy_inducing.jsonl")) == 1
    assert not list((tmp_path / "results").iterdir())


def test_no_accelerator_is_an_error_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(accelerator.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device was found"):
        accelerator.main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
