"""The runner runs what is missing, once, and checks everything before it starts."""

import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from experiments import RecordError, load_records
from experiments.runner import running
from experiments.runner.experiment import Job
from experiments.runner.identity import identity
from experiments.runner.running import Placement, RunSummary, pending, run_experiment, status
from experiments.runner.work import checkpoints
from gilib.data import DataError
from gilib.training import DivergenceError, Speed
from tests.experiments.runner.test_records import disk_that_fills_up
from tests.experiments.tiny import TINY, run


def never(*arguments):
    raise AssertionError("work was started")


def test_a_smoke_run_records_every_configuration_once_and_is_not_repeated():
    assert run_experiment("tiny", "smoke") == RunSummary(added=6, diverged=0, left=0)
    records = load_records("tiny")
    assert {record["id"] for record in records} == {identity("tiny", c) for c in TINY.configurations("smoke")}
    assert all(record["scale"] == "smoke" and record["group"] == 2 for record in records)
    assert list(checkpoints("tiny").iterdir()) == []
    assert run_experiment("tiny", "smoke") == RunSummary(0, 0, 0)
    assert pending("tiny", "smoke") == ([], 6)


def test_a_training_that_diverges_is_recorded_and_the_others_go_on(monkeypatch):
    def cubes_diverge(configs, job):
        if configs[0].task == "cube":
            raise DivergenceError("not finite at step 3")
        return run(configs, job)

    monkeypatch.setattr(running, "EXPERIMENTS", {"tiny": replace(TINY, run=cubes_diverge)})
    assert run_experiment("tiny", "smoke") == RunSummary(added=6, diverged=2, left=0)
    assert run_experiment("tiny", "smoke") == RunSummary(0, 0, 0)
    (row,) = [row for row in status() if row.scale == "smoke"]
    assert (row.recorded, row.diverged, row.total, row.note) == (6, 2, 6, "")


def test_a_time_limit_keeps_everything_and_says_what_is_left(instead):
    assert run_experiment("tiny", "smoke", time_limit=1e-9) == RunSummary(added=0, diverged=0, left=6)

    def pause_at_cubes(configs, job):
        late = replace(job, deadline=time.monotonic()) if configs[0].task == "cube" else job
        return run(configs, late)

    instead(run=pause_at_cubes)
    assert run_experiment("tiny", "smoke", time_limit=10.0) == RunSummary(added=4, diverged=0, left=2)
    instead()
    assert run_experiment("tiny", "smoke") == RunSummary(added=2, diverged=0, left=0)
    resumed = [record["config"]["task"] for record in load_records("tiny") if record.get("resumed")]
    assert resumed == ["cube", "cube"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(name="no_such"), "unknown experiment 'no_such'"),
        (dict(scale="huge"), "unknown scale 'huge'"),
        (dict(only=["sed=0"]), "unknown field 'sed'"),
        (dict(time_limit=0.0), "time_limit must be a positive"),
        (dict(device="gpu"), "unknown device 'gpu'"),
        (dict(where="moon"), "unknown place 'moon'"),
        (dict(jobs=0), "jobs must be an integer of at least 1"),
        (dict(gpus=0.0), "gpus must be a positive"),
        (dict(speed=Speed("tf32")), "TF32 needs a CUDA device"),
        (dict(device="cuda"), "no CUDA device was found: ask for --device cpu"),
    ],
)
def test_what_cannot_be_run_is_refused_before_work_starts(results, monkeypatch, instead, arguments, message):
    """And before missing data."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    instead(run=never, check=never)
    where = {field.name: arguments[field.name] for field in fields(Placement) if field.name in arguments}
    others = {name: value for name, value in arguments.items() if name not in where}
    with pytest.raises(ValueError, match=message):
        run_experiment(**{"name": "tiny", "scale": "smoke"} | others, place=Placement(**where))
    assert list(results.iterdir()) == []


def test_the_way_of_running_reaches_trainings_and_provenance():
    run_experiment("tiny", "smoke", Placement(speed=Speed("bfloat16")))
    assert {record["provenance"]["arithmetic"] for record in load_records("tiny")} == {"bfloat16"}
    options = Job(torch.device("cpu"), Path("checkpoint"), speed=Speed(replay=True)).fit_options
    assert options()["speed"].replay


def test_a_missing_device_is_named_when_all_is_recorded(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run_experiment("tiny", "smoke")
    with pytest.raises(ValueError, match="no CUDA device"):
        run_experiment("tiny", "smoke", Placement("cuda"))


def test_missing_data_a_full_disk_and_damage_are_found_before_work_starts(results, monkeypatch, instead):
    def no_data(configs):
        raise DataError(f"no data for {len(configs)} configurations")

    instead(run=never, check=no_data)
    with pytest.raises(DataError, match="no data for 6"):
        run_experiment("tiny", "smoke")
    instead(run=never)
    with monkeypatch.context() as patch:
        disk_that_fills_up(patch, 0)
        with pytest.raises(RecordError, match="No space left"):
            run_experiment("tiny", "smoke")
    assert list(results.iterdir()) == []
    (results / "tiny.jsonl").write_text("half a rec\n")
    with pytest.raises(RecordError, match="line 1"):
        run_experiment("tiny", "smoke")
    assert (results / "tiny.jsonl").read_text() == "half a rec\n"


def test_records_that_cannot_be_written_after_all_leave_their_checkpoint(monkeypatch, instead):
    def fill_the_disk(configs, job):
        bodies = run(configs, job)
        disk_that_fills_up(monkeypatch, 0)
        return bodies

    instead(run=fill_the_disk)
    with pytest.raises(RecordError, match="No space left"):
        run_experiment("tiny", "smoke", only=["task=line"])
    assert len(list(checkpoints("tiny").iterdir())) == 1


def test_a_grid_that_needs_other_records_says_so_in_the_status(monkeypatch):
    def after_another(scale):
        raise RecordError("run `python -m experiments run first` before")
        yield

    needy = {"tiny": replace(TINY, configurations=after_another)}
    monkeypatch.setattr(running, "EXPERIMENTS", needy)
    rows = status()
    assert len(rows) == 3 and all("run first` before" in row.note for row in rows)
    with pytest.raises(RecordError, match="run first` before"):
        run_experiment("tiny", "smoke")
