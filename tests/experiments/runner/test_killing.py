"""Runners that are killed at random moments lose no record, write none twice or in half, and end alike."""

import os
import random
import signal
import time
from shutil import copy

import pytest

from experiments.__main__ import main
from experiments.registry import EXPERIMENTS
from experiments.runner.provenance import source_revision
from experiments.runner.records import read_records
from experiments.runner.writing import append
from tests.experiments.tiny import TINY
from tests.support import forked

KILLS = 6
RUN = (main, ["run", "tiny", "--scale", "paper", "--device", "cpu"])
MOMENTS = ("write", "fsync", "replace")


def append_and_die(moment, group):
    """Append a group of records, and be killed within a call of `os.write`, `os.fsync` or `os.replace`."""
    whole = getattr(os, moment)

    def half(first, *rest):
        if moment == "write":
            whole(first, rest[0][: len(rest[0]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, moment, half)
    append_group(group)


def append_group(group):
    """Append ten records of several pages each."""
    head = {"experiment": "big", "scale": "smoke", "text": "x" * 9000}
    configs = [{"group": group, "k": k} for k in range(10)]
    append("big", [{"id": f"{group}-{c['k']}", **head, "config": c, "metrics": {}} for c in configs])


def ends(seconds, work, *arguments):
    """Whether work in a child process ends by itself in that time; it is killed if not."""
    limit, child = time.monotonic() + seconds, os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        work(*arguments)
        os._exit(0)
    while time.monotonic() < limit:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def kill_at_random(folder):
    """Do the work as a whole, then in rounds that are killed on the way, then append and be killed in it."""
    EXPERIMENTS["tiny"] = TINY
    source_revision()
    os.environ |= {"GILIB_RESULTS": str(folder / "whole"), "XDG_CACHE_HOME": str(folder / "cache")}
    start = time.monotonic()
    assert ends(600.0, *RUN)
    longest, chance = (time.monotonic() - start) / 3, random.Random(20)
    rounds = done = 0
    while done < KILLS:
        os.environ["GILIB_RESULTS"] = str(folder / f"round{rounds}")
        os.environ["XDG_CACHE_HOME"] = str(folder / f"cache{rounds}")
        while not ends(chance.uniform(0.0, longest) if done < KILLS else 600.0, *RUN):
            done += 1
        rounds += 1
    os.environ["GILIB_RESULTS"] = str(folder / "appended")
    for group, moment in enumerate(MOMENTS):
        assert ends(60.0, append_group, group)
        assert not ends(60.0, append_and_die, moment, 100)
        copy(folder / "appended" / "big.jsonl", folder / "appended" / f"after-{moment}.jsonl")


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing(tmp_path):
    assert forked.run(kill_at_random, tmp_path) == 0
    whole, resumed = measured(tmp_path / "whole" / "tiny.jsonl"), 0
    assert len(whole) == 6
    for path in tmp_path.glob("round*/tiny.jsonl"):
        assert measured(path) == whole, "the same numbers to the last bit"
        resumed += sum(record["data"]["resumed_at"] > 0 for record in read_records(path))
        assert {file.name for file in path.parent.iterdir()} == {path.name, f".{path.name}.lock"}
    assert resumed > 0, "a kill hit a training that had a checkpoint"
    for groups, moment in enumerate(MOMENTS, 1):
        appended = read_records(tmp_path / "appended" / f"after-{moment}.jsonl")
        assert [record["config"]["group"] for record in appended] == sorted([*range(groups)] * 10)


def measured(path):
    """What every record of a file measured; reading it finds lines in half and identities twice."""
    return {str(record["config"]): (record["metrics"], record["curve"]) for record in read_records(path)}
