"""Records are read with their line numbers, appended all or none, and merged, whatever interrupts."""

import errno
import json
import os
from pathlib import Path

import pytest

from experiments import RecordError, load_records, printed, select
from experiments.__main__ import main
from experiments.ober2021.toy import ToyConfig
from experiments.runner.identity import identity
from experiments.runner.merging import merge
from experiments.runner.records import records_of, results_directory
from experiments.runner.running import run_experiment, status
from experiments.runner.writing import append, check_writable
from tests.experiments.tiny import TinyConfig
from tests.support import forked


def record(name="a", scale="smoke", experiment="trial", **more):
    head = {"id": name, "experiment": experiment, "scale": scale}
    return head | {"config": {"name": name}, "metrics": {}} | more


GOOD = json.dumps({"schema": 1, **record()})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"schema": 1, "id"', r"line 2: not a record .*a write was cut short"),
        (b'{"schema": 1, "id": "\xff"}', r"line 2: not a record .*utf-8"),
        (b"", r"line 2: not a record"),
        (b'"text"', r"line 2: not a record of gilib"),
        (b'{"schema": 1, "id": "x"}', r"line 2: .*\(experiment, scale, config, metrics missing or wrong\)"),
        (GOOD.replace("smoke", "huge").replace('"a"', '"b"').encode(), r"line 2: .*scale missing or wrong"),
        (b'{"schema": 99, "id": "x"}', r"line 2: schema 99 is newer than 1; update gilib"),
        (b"[" * 200_000, r"line 2: not a record of gilib \(brackets within brackets"),
        (GOOD.replace("{}", '{"elbo": "high"}').encode(), r"line 2: .*a metric is text, not a number"),
        (GOOD.replace('"a"', '"b"').replace("{", '{"seconds": NaN, ', 1).encode(), r"line 2: .*NaN is not a"),
        (GOOD.encode(), r"line 2: a, or its configuration, is recorded in line 1 already"),
        (GOOD.replace('"id": "a"', '"id": "b"').encode(), r"line 2: b, or its configuration, is recorded in"),
        (GOOD.replace('"trial"', '"toy"').replace('"a"', '"b"').encode(), r"line 2: a record of 'toy', not"),
    ],
)
def test_a_foreign_truncated_newer_or_repeated_line_is_named(results, line, message):
    (results / "trial.jsonl").write_bytes(GOOD.encode() + b"\n" + line + b"\n")
    with pytest.raises(RecordError, match=message):
        load_records("trial")


def test_results_that_are_missing_or_cannot_be_read_say_so(results):
    with pytest.raises(RecordError, match="experiments run nothing"):
        load_records("nothing")
    assert records_of("nothing") == []
    (results / "trial.jsonl").mkdir()
    with pytest.raises(RecordError, match="cannot read"):
        load_records("trial")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(config={"heat": 0.5}), "does not know the setting heat: update gilib"),
        (dict(config={"seed": 7}), "the id is '.*one of them was edited"),
        (dict(id="0123456789ab"), "the id is '0123456789ab'.*one of them was edited"),
        (dict(config=None), "the setting task, seed is missing"),
        (dict(metrics={}), "there are no metrics, and the training did not diverge"),
    ],
)
def test_a_record_that_does_not_fit_is_named_before_work_starts(results, instead, change, message):
    run_experiment("tiny", "smoke", only=["task=sine"])
    path = results / "tiny.jsonl"
    first, second = map(json.loads, path.read_text().splitlines())
    config = {} if change.get("config", {}) is None else second["config"] | change.get("config", {})
    path.write_text(json.dumps(first) + "\n" + json.dumps(second | change | {"config": config}) + "\n")
    instead(run=None)
    with pytest.raises(RecordError, match=f"tiny.jsonl, line 2: .*{message}"):
        run_experiment("tiny", "smoke")
    with pytest.raises(RecordError, match=f"tiny.jsonl, line 2: .*{message}"):
        status()
    if "the id is" not in message:
        with pytest.raises(RecordError, match=message):
            select("tiny")


def test_printed_tables_keep_their_digits(kept, monkeypatch):
    """An empty variable is none."""
    monkeypatch.setenv("GILIB_RESULTS", "")
    assert results_directory() == Path(__file__).parents[3] / "results"
    rows = printed("ober2021_table2_toy_elbo_variances")
    assert {row["value"] for row in rows if row["method"] == "global_inducing"} >= {"2.236", "0.4820"}
    with pytest.raises(RecordError, match="there are .*repro_gip_elbo_iwbo"):
        printed("table_of_dreams")


def test_select_matches_settings_at_the_largest_scale():
    cells = ("smoke", "gi", 0), ("paper", "gi", 0), ("paper", "gi", 1), ("smoke", "fac", 0)
    for scale, method, seed in cells:
        config = {"method": method, "seed": seed}
        append("trial", [{**record(f"{scale}{method}{seed}", scale), "config": config}])
    assert [r["config"]["seed"] for r in select("trial", method="gi")] == [0, 1]
    assert [r["scale"] for r in select("trial", method="fac")] == ["smoke"]
    assert select("trial", method="li") == []


def compete(name, other):
    """Append 80 records, half of which another process appends, too."""
    Path(name).touch()
    forked.wait_until(Path(other).exists)
    head = {"experiment": "trial", "scale": "smoke", "metrics": {}}
    for k in range(40):
        append("trial", [{"id": i, "config": {"name": i}, **head} for i in (f"{name}-{k}", f"both-{k}")])


def visible(folder):
    """Files that are no locks."""
    return [name for name in os.listdir(folder) if not name.endswith(".lock")]


def ids(name="trial"):
    return [found["id"] for found in load_records(name)]


def disk_that_fills_up(monkeypatch, room):
    """`os.write` takes `room` more bytes, then finds no space left."""
    write, left = os.write, [room]

    def full(descriptor, content):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(descriptor, content[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(os, "write", full)


def test_appended_records_come_back_in_order_each_once(results):
    """And the last line break, where it is missing."""
    assert [r["id"] for r in append("trial", [record("a"), record("b")])] == ["a", "b"]
    assert [r["id"] for r in append("trial", [record("b"), record("c")])] == ["c"]
    assert append("trial", [record("a")]) == []
    path = results / "trial.jsonl"
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    append("trial", [record("d")])
    assert ids() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("room", [0, 1, 200])
def test_a_full_disk_leaves_the_file_as_it_was(results, monkeypatch, room):
    append("trial", [record("a")])
    before = (results / "trial.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        disk_that_fills_up(patch, room)
        with pytest.raises(RecordError, match="cannot write .*No space left"):
            append("trial", [record("b"), record("c", text="x" * 500)])
    assert (results / "trial.jsonl").read_bytes() == before
    assert visible(results) == ["trial.jsonl"]
    append("trial", [record("b")])
    assert ids() == ["a", "b"]


NAN = record("c", metrics={"value": float("nan")})


@pytest.mark.parametrize(
    ("before", "new", "message"),
    [
        (f"{GOOD}\n", [record("b"), NAN], "Out of range float"),
        (f"{GOOD}\n", [record("b", experiment="toy")], "of 'toy', not of 'trial'; move it to toy.jsonl"),
        ("half a rec", [record("b")], "line 1"),
    ],
)
def test_what_is_refused_leaves_the_file_alone(results, before, new, message):
    (results / "trial.jsonl").write_text(before)
    with pytest.raises((RecordError, ValueError), match=message):
        append("trial", new)
    assert (results / "trial.jsonl").read_text() == before


def test_competing_processes_lose_nothing_and_record_nothing_twice(tmp_path):
    both = [forked.start(compete, *names, folder=tmp_path) for names in ("ab", "ba")]
    for process in both:
        process.join(120.0)
        assert process.exitcode == 0
    wanted = {f"{name}-{k}" for name in ("a", "b", "both") for k in range(40)}
    assert set(ids()) == wanted and len(ids()) == len(wanted)


def test_what_cannot_be_written_is_found_before_work_starts(results, tmp_path, monkeypatch):
    check_writable("trial", tmp_path / "cache" / "trial")
    assert os.listdir(results) == os.listdir(tmp_path / "cache" / "trial") == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RecordError, match="cannot write to .*XDG_CACHE_HOME"):
        check_writable("trial", tmp_path / "file" / "trial")
    with monkeypatch.context() as patch:
        disk_that_fills_up(patch, 1000)
        with pytest.raises(RecordError, match="No space left.*make room, or set GILIB_RESULTS"):
            check_writable("trial", tmp_path)
    append("trial", [record("large", text="x" * 100_000)])
    with monkeypatch.context() as patch:  # room enough for a small file, not for a second one of this size
        disk_that_fills_up(patch, 150_000)
        with pytest.raises(RecordError, match="No space left.*make room, or set GILIB_RESULTS"):
            check_writable("trial", tmp_path)
    monkeypatch.setenv("GILIB_RESULTS", str(tmp_path / "file"))
    with pytest.raises(RecordError, match="cannot write to .*GILIB_RESULTS"):
        check_writable("trial", tmp_path)
    with pytest.raises(RecordError, match="cannot write"):
        append("trial", [record("a")])


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
