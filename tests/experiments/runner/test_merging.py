"""Results of several machines become one file, every identity once."""

import json

import pytest

from experiments import RecordError, load_records
from experiments.__main__ import main
from experiments.ober2021.toy import ToyConfig
from experiments.runner.identity import identity
from experiments.runner.merging import merge
from experiments.runner.writing import append
from tests.experiments.tiny import TinyConfig


def tiny(task, **more):
    config = TinyConfig(task, 0)
    about = {"id": identity("tiny", config), "experiment": "tiny", "scale": "smoke"}
    return about | {"config": {"task": task, "seed": 0, "lr": 0.01}, "metrics": {"elbo": 0.0}} | more


def line(*arguments, **more):
    return json.dumps({"schema": 1, **tiny(*arguments, **more)})


TOY = {"id": identity("toy", ToyConfig(scale="smoke")), "experiment": "toy", "config": {}}


@pytest.fixture
def files(tmp_path):
    """Two machines' results that overlap."""
    append("tiny", [tiny("a", metrics={"elbo": 1.0})])
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(line("a", metrics={"elbo": 1.0}) + "\n" + line("b") + "\n" + line("t", **TOY))
    two.write_text(line("b") + "\n" + line("c") + "\n")
    return [one, two]


def test_merging_adds_what_is_new_in_order_and_is_idempotent(files):
    merged = merge(files)
    assert (merged.added, merged.known, merged.conflicts) == ({"tiny": 2, "toy": 1}, 2, [])
    assert [r["config"]["task"] for r in load_records("tiny")] == ["a", "b", "c"]
    assert [r["id"] for r in load_records("toy")] == [TOY["id"]]
    assert merge(files).added == {"tiny": 0, "toy": 0}


def test_records_that_disagree_are_named_and_the_kept_one_stays(files, capsys):
    files[1].write_text(line("a", metrics={"elbo": 9.0}) + "\n" + line("b", metrics={"elbo": 2.0}) + "\n")
    assert main(["merge", *map(str, files)]) == 3
    printed = capsys.readouterr()
    assert f"tiny {tiny('a')['id']}: {files[1]} has other metrics" in printed.err
    assert f"tiny {tiny('b')['id']}: {files[1]} has other metrics" in printed.err
    assert "1 records added to tiny" in printed.out and "2 of them with other metrics" in printed.out
    assert [r.get("metrics") for r in load_records("tiny")] == [{"elbo": 1.0}, {"elbo": 0.0}]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line("d").replace('"schema": 1', '"schema": 2'), "two.jsonl, line 1: schema 2 is newer"),
        (line("d", experiment="../tiny"), "unknown experiment in .*two.jsonl"),
        (line("d", config={"task": "d", "seed": 0, "heat": 0.5}), "line 1: .*does not know the setting heat"),
        (line("d", id="0123456789ab"), "two.jsonl, line 1: the id is '0123456789ab'"),
    ],
)
def test_a_file_that_is_damaged_newer_or_foreign_changes_nothing(files, results, bad, message):
    before = (results / "tiny.jsonl").read_bytes()
    files[1].write_text(bad + "\n")
    with pytest.raises((RecordError, ValueError), match=message):
        merge(files)
    assert (results / "tiny.jsonl").read_bytes() == before
    assert not (results / "toy.jsonl").exists()
