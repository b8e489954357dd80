"""What the benchmarks time computes the same thing on both sides, and what they record is complete."""

import itertools
import json
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from experiments.runner.records import read_records
from tests.support.benchmarks import BENCHMARKS, load
from tests.support.oracles import Operations

FEW = {"device": torch.device("cpu"), "replicas": 2, "points": 8, "samples": 1}
CHECKS = [
    ("training_step", ["toy"], {}),  # bounds and gradients
    *(("replicas", [method], FEW) for method in ("fac", "gi")),
    ("weight_samples", [], {}),  # ways to convolve with several weights
    ("deep_gp", [], {}),  # the bound of GPyTorch
    ("structured", [], {}),  # that of doubly stochastic layers
    *(("bali", [shape], {}) for shape in ("yacht", "mnist")),  # a step on the same network
]


@pytest.mark.parametrize(("name", "given", "settings"), CHECKS)
def test_both_sides_compute_the_same(name, given, settings):
    load(name).check(*given, **settings)


def test_operations_and_plain_ones_agree():
    benchmark = load("operations")
    names = [benchmark.checked(make).name for makes in benchmark.CASES.values() for make in makes]
    assert len(names) > 10


def test_a_step_goes_every_way_that_it_can(monkeypatch):
    benchmark = load("devices")
    watch = SimpleNamespace(ms=1.0, timed=2)
    monkeypatch.setattr(benchmark, "watched", lambda *_: watch)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    ways = {name: list(benchmark.row(name, torch.device("cuda"), 2).ms) for name in ("gi", "bali")}
    assert ways == {"gi": list(benchmark.WAYS), "bali": [*benchmark.WAYS][:6]}
    assert list(benchmark.row("gi", torch.device("cpu"), 2).ms) == [*benchmark.WAYS][:4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert list(benchmark.row("gi", torch.device("cpu"), 2).ms) == ["processor", "processor, replayed"]


ROUNDED = 3 * 5e-6  # relative: a quotient of two numbers of six significant digits, rounded itself
SMALL = {
    "autocorrelation": ["--images", "3", "--channels", "3", "--sizes", "4"],
    "bali": ["--only", "yacht"],
    "deep_gp": ["--depths", "2"],
    "devices": ["--only", "bali", "1 replica"],
    "growth": ["--largest", "1", "--curves", "points", "depth"],
    "operations": ["--only", "factors"],
    "replicas": ["--methods", "fac", "--replicas", "2", "--samples", "1"],
    "replays": ["--only", "bali"],
    "resnet_step": ["--images", "2", "--prior", "ScalePrior"],
    "revisions": [str(BENCHMARKS.parent), "--cases", "yacht, shared precisions"],
    "structured": ["--inducing", "16"],
    "training_step": ["--shapes", "toy"],
    "weight_samples": ["--images", "2", "--channels", "3", "--sizes", "8"],
}


def test_every_benchmark_has_a_small_run_here():
    shared = {"floors", "measures", "recording", "revision_steps"}
    assert {path.stem for path in BENCHMARKS.glob("*.py")} - shared == set(SMALL)


@pytest.fixture
def small(monkeypatch):
    """A benchmark on products of a moment."""

    def small(name):
        benchmark = load(name)
        monkeypatch.setattr(benchmark, "check", lambda *_: None, raising=False)  # tested above
        monkeypatch.setattr(sys.modules["measures"], "PRODUCT_SIZE", {"cpu": 128})
        monkeypatch.setattr(sys.modules["measures"], "COPIED", 2**16)
        return benchmark

    return small


@pytest.fixture
def run(tmp_path, monkeypatch, small):
    """A benchmark's command line, and the records that it leaves."""
    monkeypatch.setenv("GILIB_RESULTS", str(tmp_path))

    def run(name, *options):
        small(name).main([*SMALL[name], "--threads", "1", "--repeats", "2", *options])
        path = tmp_path / "benchmarks.jsonl"
        return read_records(path) if path.exists() else []

    return run


@pytest.mark.parametrize("name", SMALL)
def test_a_record_says_what_was_measured_where(name, run):
    (record,) = run(name, "--record")
    assert record["experiment"] == "benchmarks" and record["config"]["benchmark"] == name
    assert record["config"]["settings"]["repeats"] == 2 and record["config"]["threads"] == 1
    known = {"hardware", "threads", "torch", "python", "gilib", "revision", "device"}
    assert known <= set(record["provenance"])
    metrics = record["metrics"]
    assert metrics["clock"] == "process_time" and metrics["product_rate"] > 0 and metrics["copy_rate"] > 0
    for row in metrics["rows"]:
        gflop = row.get("gflop", {})
        assert all(n > 0 for n in [*row["ms"].values(), *gflop.values()])
        assert row["case"] and set(gflop) <= set(row["ms"])
        assert "gflop" in row or name in ("operations", "revisions")  # which compare, and know no floors
        assert set(row.get("faults", {})) <= set(row["ms"])
        assert set(row.get("mbyte", {})) <= set(row["ms"])
        for method, spent in row["ms"].items():
            assert row["ratio"][method] == pytest.approx(row["ms"][row["against"]] / spent, rel=ROUNDED)
        for method, work in gflop.items():
            least = 1e3 * work / metrics["product_rate"]  # milliseconds
            assert row["share"][method] == pytest.approx(least / row["ms"][method], rel=ROUNDED)


def test_one_configuration_is_recorded_once_and_another_beside_it(run, capsys):
    first = run("weight_samples", "--record")
    assert run("weight_samples", "--record") == first
    assert "recorded already" in capsys.readouterr().out
    assert len(run("weight_samples", "--record", "--images", "3")) == 2


def test_records_of_another_machine_join_once(run, tmp_path, monkeypatch, capsys):
    (record,) = run("weight_samples", "--record")
    there = tmp_path / "there.jsonl"
    there.write_bytes((tmp_path / "benchmarks.jsonl").read_bytes())
    monkeypatch.setenv("GILIB_RESULTS", str(tmp_path / "here"))
    recording = sys.modules["recording"]
    for added in (1, 0):
        recording.main([str(there)])
        assert f"{added} records added" in capsys.readouterr().out
    assert read_records(tmp_path / "here" / "benchmarks.jsonl") == [record]
    there.write_text(json.dumps(record | {"experiment": "uci", "metrics": {"rmse": 1.0}}) + "\n")
    with pytest.raises(SystemExit, match="records of uci: join them by"):
        recording.main([str(there)])


def test_a_damaged_file_is_left_as_it_is(run, tmp_path):
    path = tmp_path / "benchmarks.jsonl"
    path.write_text(json.dumps({"schema": 1})[:-1])
    with pytest.raises(RuntimeError, match="not a record"):
        run("weight_samples", "--record")
    assert path.read_text() == '{"schema": 1'


def test_a_folder_without_the_package_is_no_other_revision(tmp_path, monkeypatch, small):
    benchmark = small("revisions")
    monkeypatch.setattr(benchmark, "subprocess", Mock())
    monkeypatch.setattr(benchmark.Serving, "_answer", lambda self: str(BENCHMARKS.parent / "gilib"))
    with pytest.raises(SystemExit, match="holds no gilib"):
        benchmark.main([str(tmp_path), "--repeats", "1"])


def test_threads_and_denormals_are_as_before_after_a_run(run, monkeypatch):
    """Two threads are asked for, and not started: tests have one."""
    calls, before = [], torch.tensor(1e-39).mul(1.0).item()
    monkeypatch.setattr(torch, "set_num_threads", calls.append)
    run("weight_samples", "--threads", "2")
    assert calls == [2, torch.get_num_threads()]
    assert torch.tensor(1e-39).mul(1.0).item() == before


def test_one_library_or_both(run, monkeypatch):
    """What is asked for holds during the run, is part of the record, and over with it."""
    load("weight_samples")
    measures, seen = sys.modules["measures"], []
    own = measures.rate
    monkeypatch.setattr(measures, "rate", lambda *a: seen.append(torch.backends.mkldnn.enabled) or own(*a))
    before = torch.backends.mkldnn.enabled
    (first,) = run("weight_samples", "--record", "--without-onednn")
    assert len(run("weight_samples", "--record")) == 2 and first["config"]["settings"]["without_onednn"]
    assert seen == [False, False, before, before] and torch.backends.mkldnn.enabled == before


@pytest.mark.parametrize("method", ["fac", "gi", "gi_outputs", "dsvi", "dgp_gi", "star"])
@pytest.mark.parametrize("change", [{"points": 128}, {"inducing": 64, "width": 8, "depth": 3}])
def test_floors_are_the_products_that_torch_counts(method, change):
    """Exactly without inducing points; else they leave out halves of symmetric products, and small ones."""
    growth = load("growth")
    size = growth.Size(3, 64, 48, 6, 2)._replace(**change)
    step, _ = growth.stepper(method, size)
    step()
    with Operations() as counter:
        step()
    ratio = counter.products.total() / 1e9 / growth.floor(method, size)
    if method == "fac":
        assert ratio == pytest.approx(1.0, rel=1e-12)
    else:
        assert 1.0 < ratio < 1.75


@pytest.mark.parametrize("shape", [(3, 7, 2), (5, 4, 6, 3)])
def test_layerwise_operations_are_the_products_that_torch_counts(shape):
    """Which computes all second moments in one product, and symmetric ones whole; solves are no products."""
    bali, points = load("bali"), 30
    sizes, found = bali.Shape(shape, points, points), []
    for steps in (4, 5):
        settings = {"num_samples": 1, "rule": bali.Bali(), "steps": steps, "progress": False}
        with Operations() as counter:
            bali.gilib.fit(bali.network(sizes), bali.likelihood_of(sizes), *bali.data(sizes), **settings)
        found.append(counter.products.total() / 1e9)
    wanted = bali.operations(sizes)["bali"]
    for inputs, o in itertools.pairwise(shape):
        i = inputs + 1
        whole = points * (i + o) ** 2 + 3 * i * o**2 + o**3 + i**2 * o
        biases = 2 * points * o  # which are added
        wanted += (whole - i**3 / 3 - 2 * i**2 * o - biases) / 1e9
    assert found[1] - found[0] == pytest.approx(wanted, rel=1e-9)
