"""The command line: what it prints, and its exit status."""

import json
from unittest.mock import Mock

import pytest

from experiments.__main__ import CONFLICT, DIVERGED, INTERRUPTED, LEFT, main
from experiments.registry import EXPERIMENTS
from gilib.training import DivergenceError


def test_list_run_and_status(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in EXPERIMENTS)
    assert main(["run", "tiny", "--scale", "smoke", "--only", "task=sine", "seed=1", "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert "1 records added to tiny" in printed.out
    assert "1/1" in printed.err and "run/s" in printed.err.replace("s/run", "run/s"), "a bar with its rate"
    assert main(["status"]) == 0
    assert ["tiny", "smoke", "1", "of", "6"] in [line.split() for line in capsys.readouterr().out.split("\n")]


def test_work_that_a_time_limit_leaves_has_an_exit_status_of_its_own(capsys):
    assert main(["run", "tiny", "--scale", "smoke", "--time-limit", "1e-9"]) == 5
    assert "6 configurations are left; run again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "tiny", "--jobs", "0"], "jobs must be an integer"),
        (["run", "tiny", "--only", "seed=9"], "There are seed: 0, 1"),
        (["run", "tiny", "--again", "--time-limit", "1"], "keeps no checkpoints"),
        (["run", "tiny", "--again"], "nothing of this is recorded"),
    ],
)
def test_mistakes_are_explained(arguments, message, capsys, results):
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
    assert list(results.iterdir()) == []


@pytest.mark.parametrize("arguments", [["run", "no-such-experiment"], ["run", "tiny", "--device", "gpu"], []])
def test_unknown_words_are_explained_with_what_there_is(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert "choose from" in (text := capsys.readouterr().err) or "required" in text


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "run again to go on"),
        (DivergenceError("not finite at step 3"), 4, "1 diverged"),
    ],
)
def test_an_interruption_and_a_divergence_have_exit_statuses_of_their_own(
    instead, capsys, error, status, said
):
    command = ["run", "tiny", "--scale", "smoke", "--only", "task=sine", "seed=0"]
    instead(run=Mock(side_effect=error))
    assert main(command) == status
    printed = capsys.readouterr()
    assert said in printed.err + printed.out
    if status == 4:
        assert main(command) == 0, "recorded already"


def test_the_exit_statuses_are_in_the_help(capsys):
    for command in (["--help"], ["run", "--help"], ["merge", "--help"]):
        with pytest.raises(SystemExit):
            main(command)
        printed = " ".join(capsys.readouterr().out.split())
        assert all(f"{n} " in printed for n in (0, 1, 2, CONFLICT, DIVERGED, LEFT, INTERRUPTED))
        assert "exit status" in printed


def test_what_is_recorded_is_repeated_beside_it_and_nothing_is_written(capsys, results, tmp_path):
    assert main(["run", "tiny", "--scale", "smoke", "--only", "task=sine", "--device", "cpu"]) == 0
    path = results / "tiny.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[1]["metrics"]["elbo"] -= 1.0  # as a machine might have it that computes otherwise
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    before = sorted(tmp_path.rglob("*")), path.read_bytes()
    capsys.readouterr()
    assert main(["run", "tiny", "--scale", "smoke", "--only", "task=sine", "task=cube", "--again"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "cube" not in "".join(printed), "what is not recorded is not repeated"
    assert [line.split()[-1] for line in printed if line.split()[0] == "elbo"] == ["0", "1"]
    assert [line.split()[1:] for line in printed if line.split()[0] == "weights"] == [
        [f"{n}", "numbers"] * 2 + ["0"] for n in [len(records[0]["metrics"]["weights"])] * 2
    ]
    assert before == (sorted(tmp_path.rglob("*")), path.read_bytes())


def test_a_repetition_says_when_it_trains_in_another_group(capsys):
    assert main(["run", "tiny", "--scale", "smoke", "--only", "task=sine"]) == 0
    assert main(["run", "tiny", "--scale", "smoke", "--only", "task=sine", "seed=1", "--again"]) == 0
    assert "trained as one of 2 replicas, and now as one of 1" in capsys.readouterr().out
