"""A file is replaced whole or not at all, whatever happens on the way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gilib.files import replace_file, replacing, sweep, write_all

ROOT = Path(__file__).parents[1]
KILLED = """
import os, signal, sys
from gilib.files import replacing
with replacing(sys.argv[1]) as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "file"
    replace_file(path, b"old")
    return path


def test_content_takes_the_place_of_the_file_at_the_end_of_the_block(old):
    with replacing(old) as stream:
        stream.write(b"new content")
        stream.flush()
        assert old.read_bytes() == b"old"
        stream.seek(4)
        assert stream.read() == b"content"
    assert old.read_bytes() == b"new content" and os.listdir(old.parent) == ["file"]


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
@pytest.mark.parametrize("exists", [True, False])
def test_an_error_leaves_the_file_as_it_was_and_nothing_beside_it(old, error, exists):
    path = old if exists else old.with_name("other")
    with pytest.raises(error), replacing(path) as stream:
        stream.write(b"half")
        raise error
    assert old.read_bytes() == b"old" and os.listdir(old.parent) == ["file"]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_step_that_fails_leaves_the_file_as_it_was(old, monkeypatch, step):
    def full(*arguments):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(OSError, match="No space left"):
            replace_file(old, b"new")
    assert old.read_bytes() == b"old" and os.listdir(old.parent) == ["file"]


def test_content_is_on_the_disk_before_it_has_the_name(old, monkeypatch):
    steps, real = [], {name: getattr(os, name) for name in ("write", "fsync", "replace")}

    def noted(name):
        return lambda *arguments: steps.append(name) or real[name](*arguments)

    for name in real:
        monkeypatch.setattr(os, name, noted(name))
    replace_file(old, b"new")
    assert steps[:3] == ["write", "fsync", "replace"]
    assert steps[3:] == (["fsync"] if os.name == "posix" else [])


def test_a_killed_process_leaves_the_old_content_and_what_can_be_swept(old):
    replace_file(old.with_name("file.2"), b"another file")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(old)], env=environment, check=False)
    assert done.returncode < 0 and old.read_bytes() == b"old"
    assert len(os.listdir(old.parent)) == 3
    sweep(old.with_name("other"))
    assert len(os.listdir(old.parent)) == 3
    sweep(old)
    assert sorted(os.listdir(old.parent)) == ["file", "file.2"]


def test_permissions_are_kept_and_new_files_have_the_usual_ones(old, tmp_path):
    (tmp_path / "usual").touch()
    assert old.stat().st_mode == (tmp_path / "usual").stat().st_mode
    old.chmod(0o640)
    replace_file(old, b"new")
    assert old.stat().st_mode & 0o777 == 0o640


def test_a_system_that_takes_little_at_a_time_gets_it_all(old, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:3]))
    replace_file(old, b"0123456789")
    assert old.read_bytes() == b"0123456789"
    with old.open("wb") as stream:
        write_all(stream.fileno(), b"")
    assert old.read_bytes() == b""


def test_folders_are_made_and_what_is_in_the_way_is_an_error(old):
    replace_file(old.parent / "a" / "b", b"new")
    assert (old.parent / "a" / "b").read_bytes() == b"new"
    with pytest.raises(OSError):
        replace_file(old / "below a file", b"new")
