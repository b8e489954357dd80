"""Records are appended all or none, once, whatever interrupts or competes."""

import errno
import os
from pathlib import Path

import pytest

from experiments import RecordError, load_records
from experiments.runner.writing import append, check_writable
from tests.experiments.runner.test_records import GOOD, record
from tests.support import forked


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
        (
            f"{GOOD}\n",
            [record("b", experiment="toy")],
            "a record of 'toy', not of 'trial'; move it to toy.jsonl",
        ),
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
