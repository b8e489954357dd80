"""The runner runs what is missing, once, and nothing else."""

import pytest

from gilib.experiments.__main__ import main
from gilib.experiments.records import load_records
from gilib.experiments.runner import EXPERIMENTS, pending, run_experiment
from gilib.experiments.toy import METHODS, figure_a2, reproduction, table_2


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("GILIB_RESULTS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_a_smoke_run_records_every_configuration_once_and_is_not_repeated():
    expected = len(set(figure_a2("smoke")))
    assert run_experiment("toy_inducing", "smoke") == expected
    records = load_records("toy_inducing")
    assert len({record["id"] for record in records}) == len(records) == expected
    assert [record["config"]["num_inducing"] for record in records] == [2, 5, 10, 20, 40]
    assert all(record["scale"] == "smoke" and len(record["data"]["sha256"]) == 64 for record in records)
    assert run_experiment("toy_inducing", "smoke") == 0
    assert pending("toy_inducing", "smoke") == ([], expected)


def test_paper_grids_cover_what_the_chapters_show():
    table = list(table_2("paper"))
    assert {config.method for config in table} == set(METHODS)
    assert {config.seed for config in table} == set(range(10))
    assert all(config.steps == 5000 and config.num_samples == 10 for config in table)
    sweep = list(reproduction("paper"))
    assert len({config.prior_scale for config in sweep if config.seed == 0}) == 12
    assert {config.num_inducing for config in sweep} == {1, 2, 5, *range(10, 101, 10)}


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_every_experiment_has_a_smoke_scale(name):
    todo, total = pending(name, "smoke")
    assert len(todo) == total > 0


def test_the_command_line(capsys):
    assert main(["list"]) == 0
    assert main(["status"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in EXPERIMENTS)
    with pytest.raises(SystemExit) as error:
        main(["run", "no-such-experiment"])
    assert error.value.code == 2
    assert main(["run", "toy", "--jobs", "0"]) == 1
    assert "jobs must be an integer" in capsys.readouterr().err


def test_a_damaged_results_file_stops_the_run(results, capsys):
    (results / "toy.jsonl").write_text("half a rec\n")
    assert main(["run", "toy", "--scale", "smoke"]) == 1
    assert "line 1" in capsys.readouterr().err
    assert (results / "toy.jsonl").read_text() == "half a rec\n"
