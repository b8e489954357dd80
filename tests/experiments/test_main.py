"""The command line: what it prints, and its exit status."""

import dataclasses
import sys
import types

import pytest

import gilib.experiments
from gilib.experiments.__main__ import main
from gilib.experiments.registry import EXPERIMENTS
from tests.experiments.tiny import TINY


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


def test_a_time_limit_ends_well(capsys):
    assert main(["run", "tiny", "--scale", "smoke", "--time-limit", "1e-9"]) == 0
    assert "6 configurations are left; run again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "tiny", "--jobs", "0"], "jobs must be an integer"),
        (["run", "tiny", "--only", "sed=1"], "the fields are task, seed, lr, scale"),
        (["run", "tiny", "--only", "seed=9"], "There are seed: 0, 1"),
        (["run", "tiny", "--time-limit", "-1"], "time_limit must be"),
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


def test_an_interruption_is_reported(monkeypatch, capsys):
    def interrupt(configs, job):
        raise KeyboardInterrupt

    monkeypatch.setitem(EXPERIMENTS, "tiny", dataclasses.replace(TINY, run=interrupt))
    assert main(["run", "tiny", "--scale", "smoke"]) == 130
    assert "run again to go on" in capsys.readouterr().err


def test_the_report_is_printed_or_written(monkeypatch, capsys, tmp_path):
    report = types.ModuleType("gilib.experiments.report")
    report.text = lambda: "all is well"
    monkeypatch.setitem(sys.modules, "gilib.experiments.report", report)
    monkeypatch.setattr(gilib.experiments, "report", report, raising=False)
    assert main(["report"]) == 0
    assert capsys.readouterr().out == "all is well\n"
    assert main(["report", "--out", str(tmp_path / "report.md")]) == 0
    assert (tmp_path / "report.md").read_text() == "all is well"
