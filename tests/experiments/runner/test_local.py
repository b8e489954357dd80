"""Processes and clusters that work: one that dies loses no records, and none outlives its parent."""

import os
import sys
import types
from pathlib import Path

import pytest

from experiments import RecordError, load_records
from experiments.__main__ import main
from experiments.registry import EXPERIMENTS
from experiments.runner import cluster
from experiments.runner.local import in_processes
from experiments.runner.records import records_of
from experiments.runner.running import Placement, run_experiment
from experiments.runner.work import Work
from gilib.data import DataError
from tests.experiments import tiny
from tests.experiments.recorded import measured
from tests.support import forked

ROOT = Path(__file__).parents[3]
GROUPS = [(config,) for config in tiny.configurations("smoke")][:2]


def work_for_ever():
    list(in_processes(Work("tiny", tiny.stay), GROUPS, 2))


@pytest.fixture
def mark(tmp_path, monkeypatch):
    (tmp_path / "mark").mkdir()
    monkeypatch.setenv("TINY_MARK", str(tmp_path / "mark"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "mark"


def gone(process):
    """Whether a process has ended: its number is free, or waits for somebody to read its exit status."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


@pytest.mark.slow
def test_a_worker_that_is_killed_is_reported_and_the_next_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("TINY_MARK", str(tmp_path / "killed"))
    monkeypatch.setitem(EXPERIMENTS, "unlucky", tiny.UNLUCKY)
    with pytest.raises(RecordError, match="a worker process was killed.*fewer --jobs"):
        run_experiment("unlucky", "smoke", Placement("cpu", jobs=2))
    left = 6 - len(records_of("unlucky"))
    assert left >= 2
    assert run_experiment("unlucky", "smoke", Placement("cpu")).added == left
    records = load_records("unlucky")
    assert len({record["id"] for record in records}) == len(records) == 6
    assert run_experiment("tiny", "smoke", Placement("cpu")).added == 6
    assert measured("unlucky") == measured("tiny")


@needs_proc
@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_parent(mark):
    parent = forked.start(work_for_ever)
    forked.wait_until(lambda: len(os.listdir(mark)) == 2)
    parent.kill()
    parent.join()
    forked.wait_until(lambda: all(map(gone, os.listdir(mark))))


@needs_proc
@pytest.mark.slow
def test_an_error_in_one_worker_stops_the_others(mark):
    with pytest.raises(DataError, match="no data for sine"):
        list(in_processes(Work("tiny", tiny.stay_or_fail), GROUPS, 2))
    (other,) = os.listdir(mark)
    forked.wait_until(lambda: gone(other))


def no_data(configs, job):
    raise DataError(f"no data for {configs[0].task}")


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_records_everything_once(tmp_path, monkeypatch, capsys, instead):
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # where the cluster's workers find the tiny experiment
    monkeypatch.setenv("TINY_MARK", str(tmp_path / "killed"))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setitem(EXPERIMENTS, "unlucky", tiny.UNLUCKY)
    with cluster.connected(1):
        assert main(["run", "unlucky", "--scale", "smoke", "--where", "ray"]) == 0
        assert "6 records added to unlucky" in capsys.readouterr().out
        with pytest.raises(ValueError, match="no CUDA device was found"):
            run_experiment("tiny", "smoke", Placement("cuda", "ray"))
        instead(run=no_data)
        with pytest.raises(DataError, match="^no data for [a-z]*$"):
            run_experiment("tiny", "smoke", Placement("cpu", "ray"))
    assert (tmp_path / "killed").exists()
    records = load_records("unlucky")
    assert len({record["id"] for record in records}) == len(records) == 6
    resumed = {record["config"]["task"] for record in records if record.get("resumed")}
    assert resumed == {"cube"}, "the lost task goes on from its checkpoint"
    instead()
    assert run_experiment("tiny", "smoke", Placement("cpu")).added == 6
    assert measured("tiny") == measured("unlucky"), "where it runs makes no difference"


@pytest.fixture
def ray(monkeypatch):
    """A stand-in for Ray that notes what it is asked for, and does tasks at once."""
    stub = types.ModuleType("ray")
    stub.asked = []
    errors = {name: type(name, (Exception,), {}) for name in ("RayTaskError", "RayError")}
    stub.exceptions = types.SimpleNamespace(**errors)
    stub.is_initialized = lambda: False
    stub.init = lambda **settings: stub.asked.append(settings)
    stub.shutdown = lambda: stub.asked.append("shutdown")
    stub.cluster_resources = lambda: {"CPU": 8.0, "GPU": 2.0}
    stub.cancel = lambda task, force: stub.asked.append("cancel")
    stub.wait = lambda running, num_returns: (running[:num_returns], running[num_returns:])
    stub.get = lambda task: task()

    def remote(**settings):
        stub.asked.append(settings)
        return lambda function: types.SimpleNamespace(remote=lambda group: lambda: function(group))

    stub.remote = remote
    monkeypatch.setitem(sys.modules, "ray", stub)
    return stub


def test_accelerators_are_counted_and_the_address_is_taken_from_the_environment(ray, monkeypatch, instead):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    devices = []

    def note(configs, job):
        devices.append(job.device.type)
        raise DataError("enough")

    instead(run=note)
    for place in (Placement("auto", "ray", gpus=0.5), Placement("cpu", "ray")):
        with pytest.raises(DataError):
            run_experiment("tiny", "smoke", place)
    assert devices == ["cuda", "cpu"]
    expected = []
    for gpus in (0.5, 0.0):
        task = {"num_cpus": 1, "max_retries": cluster.RETRIES, "num_gpus": gpus}
        expected += [{"address": "auto", "log_to_driver": False}, task, "cancel", "cancel", "shutdown"]
    assert ray.asked == expected


def test_a_task_that_is_lost_too_often_is_reported(ray):
    def lose(configs, job):
        raise ray.exceptions.RayError("the node died")

    with pytest.raises(RecordError, match="lost 4 times: what was recorded is kept.*the node died"):
        list(cluster.on_ray(Work("tiny", lose), [tuple(tiny.configurations("smoke"))], 0.0))


def test_without_ray_the_message_says_what_to_install(results, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["run", "tiny", "--scale", "smoke", "--where", "ray"]) == 1
    assert "pip install -c constraints.txt -e '.[cluster]'" in capsys.readouterr().err
    assert not (results / "tiny.jsonl").exists()
