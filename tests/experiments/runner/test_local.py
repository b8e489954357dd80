"""Worker processes: one that dies loses no records, and none outlives its parent."""

import os
from pathlib import Path

import pytest

from experiments import RecordError, load_records
from experiments.registry import EXPERIMENTS
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
