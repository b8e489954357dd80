"""Kill a runner at random moments until its work is done, in a process that forks its victims."""

import os
import random
import signal
import time
from shutil import copy

from experiments.__main__ import main
from experiments.registry import EXPERIMENTS
from experiments.runner.provenance import source_revision
from experiments.runner.writing import append
from tests.experiments.tiny import TINY


def run_tiny():
    """The work that is interrupted: all of the tiny experiment."""
    main(["run", "tiny", "--scale", "paper", "--device", "cpu"])


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


def fork(work):
    """Start `work` in a child process."""
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        work()
        os._exit(0)
    return child


def ended(child, seconds):
    """Whether a child ends by itself in that time; it is killed if not."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def kill_until_done(folder, kills, chance, longest):
    """Rounds of the whole work, each begun from nothing and killed on the way."""
    rounds = done = 0
    while done < kills:
        os.environ["GILIB_RESULTS"] = str(folder / f"round{rounds}")
        os.environ["XDG_CACHE_HOME"] = str(folder / f"cache{rounds}")
        while not ended(fork(run_tiny), chance.uniform(0.0, longest) if done < kills else 600.0):
            done += 1
        rounds += 1


def kill_appending(folder):
    """Kill processes in the middle of an append; another one goes on after each."""
    os.environ["GILIB_RESULTS"] = str(folder / "appended")
    for group, moment in enumerate(("write", "fsync", "replace")):
        assert ended(fork(lambda group=group: append_group(group)), 60.0)
        assert not ended(fork(lambda moment=moment: append_and_die(moment, 100)), 60.0)
        copy(folder / "appended" / "big.jsonl", folder / "appended" / f"after-{moment}.jsonl")


def kill_at_random(folder, kills):
    """Do the work once as a whole, then with kills at random moments, then append with kills."""
    EXPERIMENTS["tiny"] = TINY
    source_revision()
    os.environ |= {"GILIB_RESULTS": str(folder / "whole"), "XDG_CACHE_HOME": str(folder / "cache")}
    start = time.monotonic()
    assert ended(fork(run_tiny), 600.0)
    kill_until_done(folder, kills, random.Random(20), (time.monotonic() - start) / 3)
    kill_appending(folder)
