"""A group's records: whole, honest about failures, and from a checkpoint where there is one."""

import dataclasses
import json
import time

import pytest
import torch

from experiments.runner.identity import identity
from experiments.runner.records import RecordError
from experiments.runner.work import Work, checkpoint_folder
from gilib.linalg import FactorisationError
from gilib.training import DivergenceError
from tests.experiments import tiny

CONFIGS = tuple(tiny.TinyConfig("sine", seed) for seed in range(5))


def bodies(configs, job):
    return [{"metrics": {"seed": config.seed}} for config in configs]


def measured(records):
    return [(record["metrics"], record["curve"]) for record in records]


def test_a_record_holds_settings_and_where_it_comes_from():
    (record,) = Work("tiny", tiny.run)((CONFIGS[0],)).records
    assert record["id"] == identity("tiny", CONFIGS[0])
    assert record["experiment"] == "tiny" and record["scale"] == "smoke" and record["group"] == 1
    assert record["config"] == {"task": "sine", "seed": 0, "lr": 0.01}
    about = json.loads(json.dumps(record["provenance"]))
    assert {"gilib", "torch", "python", "device", "hardware", "threads", "revision"} == set(about)
    assert record["seconds"] >= 0.0 and about["threads"] == 1 and about["device"] == "cpu"
    assert "resumed" not in record and len(record["curve"]) == 20


@pytest.mark.parametrize(
    "error", [DivergenceError("not finite at step 7"), FactorisationError("matrix 2", "not finite at step 7")]
)
def test_one_configuration_that_breaks_down_does_not_take_the_others_along(error):
    tried = []

    def run(configs, job):
        tried.append([config.seed for config in configs])
        if 3 in tried[-1]:
            raise error
        return bodies(configs, job)

    records = Work("tiny", run)(CONFIGS).records
    assert tried == [[0, 1, 2, 3, 4], [0, 1], [2, 3, 4], [2], [3, 4], [3], [4]]
    assert [record["id"] for record in records] == [identity("tiny", config) for config in CONFIGS]
    assert [record["metrics"] for record in records] == [{"seed": s} if s != 3 else {} for s in range(5)]
    assert [record["group"] for record in records] == [2, 2, 1, 1, 1]
    assert records[3]["diverged_at"] is None and "not finite at step 7" in records[3]["error"]


def test_a_group_that_does_not_fit_is_halved_until_it_does():
    def work(most):
        def run(configs, job):
            if len(configs) > most:
                raise torch.OutOfMemoryError("out of memory")
            return bodies(configs, job)

        return Work("tiny", run)(CONFIGS)

    assert [record["group"] for record in work(2).records] == [2, 2, 1, 2, 2]
    with pytest.raises(RecordError, match="TinyConfig.*does not fit on the device"):
        work(0)


def test_bodies_that_cannot_be_records():
    """A metric that is not finite counts as diverged."""
    body = {"data": {"name": "none"}, "metrics": {"elbo": float("inf")}}
    (record,) = Work("tiny", lambda configs, job: [body])(CONFIGS[:1]).records
    assert record["error"] == "a metric is not finite" and record["metrics"] == {}
    assert record["data"] == {"name": "none"}
    with pytest.raises(RecordError, match="tiny must return a list of 5 records, one for each"):
        Work("tiny", lambda configs, job: [{}])(CONFIGS)
    with pytest.raises(RecordError, match="not plain data"):
        Work("tiny", lambda configs, job: [{"metrics": torch.zeros(1)}])(CONFIGS[:1])


def test_a_pause_keeps_the_checkpoint_and_the_next_run_ends_at_the_same_numbers():
    whole = Work("whole", tiny.run)(CONFIGS).records
    assert Work("tiny", None, deadline=time.time() - 1.0)(CONFIGS).records is None, "nothing starts late"
    late = Work("tiny", lambda configs, job: tiny.run(configs, now(job)), deadline=time.time() + 1000.0)
    assert late(CONFIGS).records is None
    assert (checkpoint_folder("tiny", CONFIGS) / "checkpoint").exists()
    assert float((checkpoint_folder("tiny", CONFIGS) / "seconds").read_text()) > 0.0
    (checkpoint_folder("tiny", CONFIGS) / "seconds").write_text("1000.0")
    resumed = Work("tiny", tiny.run)(CONFIGS).records
    assert all(record["resumed"] and 1000.0 <= record["seconds"] < 1100.0 for record in resumed)
    assert measured(resumed) == measured(whole)


@pytest.mark.parametrize("content", [b"", b"12.", b"\xff"])
def test_a_damaged_number_of_seconds_stops_nothing(content):
    folder = checkpoint_folder("tiny", CONFIGS[:1])
    folder.mkdir(parents=True)
    (folder / "seconds").write_bytes(content)
    (record,) = Work("tiny", tiny.run)(CONFIGS[:1]).records
    assert record["metrics"] and record["resumed"]


def now(job):
    """The same job with its deadline reached."""
    assert 900.0 < job.deadline - time.monotonic() <= 1000.0
    return dataclasses.replace(job, deadline=time.monotonic())


def test_a_damaged_checkpoint_is_reported_and_done_without():
    folder = checkpoint_folder("tiny", CONFIGS)
    folder.mkdir(parents=True)
    (folder / "checkpoint").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="tiny starts afresh: .*damaged"):
        records = Work("tiny", tiny.run)(CONFIGS).records
    assert measured(records) == measured(Work("whole", tiny.run)(CONFIGS).records)


def test_threads_and_denormals_are_given_back():
    def flushed():
        return float(torch.tensor(1e-38) * 0.1) == 0.0

    def run(configs, job):
        seen.append((torch.get_num_threads(), flushed()))
        return bodies(configs, job)

    torch.set_num_threads(2)
    try:
        seen, before = [], flushed()
        Work("tiny", run)(CONFIGS)
        assert seen == [(1, True)] and torch.get_num_threads() == 2 and flushed() == before
    finally:
        torch.set_num_threads(1)
