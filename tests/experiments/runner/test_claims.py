"""Two runners on one cache: a group is worked on once, and neither cleans up under the other."""

import dataclasses
import sys
from pathlib import Path

import pytest

from experiments import load_records
from experiments.__main__ import main
from experiments.registry import EXPERIMENTS
from experiments.runner.claims import Claims
from experiments.runner.identity import identity
from experiments.runner.running import RunSummary, run_experiment
from experiments.runner.work import checkpoints
from tests.experiments import tiny
from tests.support import forked

GROUPS = [(config,) for config in tiny.configurations("smoke")][:3]


def run_beside_another(name):
    """Run all of the tiny experiment, but wait in the first group until another process has begun, too."""

    def noted(configs, job):
        with open("worked", "a") as stream:
            stream.write(configs[0].task + "\n")
        Path(f"began-{name}").touch()
        forked.wait_until(lambda: len(list(Path().glob("began-*"))) == 2, 600.0)
        return tiny.run(configs, job)

    EXPERIMENTS["tiny"] = dataclasses.replace(tiny.TINY, run=noted)
    sys.exit(main(["run", "tiny", "--scale", "paper", "--device", "cpu"]))


@pytest.fixture
def cache():
    """The folder of the locks, as the runner makes it before it claims anything."""
    checkpoints("tiny").mkdir(parents=True)
    return checkpoints("tiny")


def test_two_processes_share_the_groups_and_neither_fails(tmp_path):
    both = [forked.start(run_beside_another, name, folder=tmp_path) for name in "ab"]
    for process in both:
        process.join(300.0)
        assert process.exitcode in (0, 5)
    assert sorted((tmp_path / "worked").read_text().split()) == ["cube", "line", "sine"]
    records = load_records("tiny")
    assert len({record["id"] for record in records}) == len(records) == 6
    assert not any(record.get("resumed") for record in records)
    assert list(checkpoints("tiny").iterdir()) == []


def test_what_another_runner_holds_is_left_to_it_and_said(cache, capsys):
    other = Claims("tiny", [tuple(c for c in tiny.configurations("smoke") if c.task == "cube")], set)
    assert len(list(other)) == 1
    assert run_experiment("tiny", "smoke") == RunSummary(added=4, diverged=0, left=2, elsewhere=2)
    assert main(["run", "tiny", "--scale", "smoke"]) == 5
    assert "another runner works on 2 configurations" in capsys.readouterr().out
    other.close()
    assert run_experiment("tiny", "smoke") == RunSummary(added=2, diverged=0, left=0)


def test_claims_are_asked_for_again_and_what_was_recorded_meanwhile_is_left_out(cache):
    done = set()
    first, second = Claims("tiny", GROUPS[:2], lambda: done), Claims("tiny", GROUPS, lambda: done)
    held, taken = iter(first), iter(second)
    assert [next(held), next(held)] == GROUPS[:2]
    assert next(taken) == GROUPS[2]
    done.add(identity("tiny", GROUPS[0][0]))
    first.close()  # one group is recorded, the other was given up
    assert list(taken) == [GROUPS[1]] and second.left == []
    second.close()
    assert list(cache.iterdir()) == []


def test_an_end_by_an_error_gives_everything_back(instead):
    def fail(configs, job):
        raise ValueError("enough")

    instead(run=fail)
    with pytest.raises(ValueError, match="enough"):
        run_experiment("tiny", "smoke")
    instead()
    assert run_experiment("tiny", "smoke").added == 6


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    waits = forked.start(run_beside_another, "a", folder=tmp_path)
    forked.wait_until((tmp_path / "began-a").exists)
    held = next(checkpoints("tiny").glob("*.lock"))
    waits.kill()
    waits.join()
    assert held.exists()
    assert run_experiment("tiny", "paper") == RunSummary(added=6, diverged=0, left=0)
