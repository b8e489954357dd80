"""A file is replaced whole or not at all, whatever happens on the way."""

import os
import signal
import socket
from pathlib import Path

import pytest

from gilib.files import check_replaceable, replace_file, replacing, write_all
from tests.support import forked


def die_in_the_middle(path):
    with replacing(path) as stream:
        stream.write(b"half")
        stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)


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


@pytest.mark.parametrize(("error", "exists"), [(OSError, True), (KeyboardInterrupt, False)])
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


posix = pytest.mark.skipif(os.name != "posix", reason="of POSIX systems")


@posix
def test_what_a_killed_process_leaves_is_swept_by_the_next_and_nothing_else_is(old):
    others = ["file.2", ".file.2.0123456789abcdef.new", ".file.kept.new", ".other.0123456789abcdef.new"]
    for name in others:
        old.with_name(name).touch()
    assert forked.run(die_in_the_middle, old) == -signal.SIGKILL and old.read_bytes() == b"old"
    assert len(os.listdir(old.parent)) == 2 + len(others)
    replace_file(old.with_name("file.3"), b"another")
    assert len(os.listdir(old.parent)) == 3 + len(others)
    replace_file(old, b"new")
    assert sorted(os.listdir(old.parent)) == sorted(["file", "file.3", *others])


def test_what_a_living_process_writes_is_not_swept(old):
    with replacing(old) as first:
        first.write(b"first")
        replace_file(old, b"second")
        assert old.read_bytes() == b"second"
    assert old.read_bytes() == b"first" and os.listdir(old.parent) == ["file"]


@posix
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_file_is_replaced(old, tmp_path, exists):
    link, target = tmp_path / "deep" / "link", old if exists else tmp_path / "other"
    link.parent.mkdir()
    (tmp_path / "folder").symlink_to("deep")
    link.symlink_to(Path("..") / target.name)
    replace_file(tmp_path / "folder" / "link", b"new")
    assert link.is_symlink() and target.read_bytes() == b"new" and not target.is_symlink()
    assert os.listdir(link.parent) == ["link"]


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="others' files need root")
def test_the_owner_is_kept(old):
    os.chown(old, 65534, 65533)
    old.chmod(0o640)
    replace_file(old, b"new")
    after = old.stat()
    assert (after.st_uid, after.st_gid, after.st_mode & 0o777) == (65534, 65533, 0o640)


@posix
@pytest.mark.parametrize("kind", ["pipe", "socket", "loop", "link to a pipe", "folder"])
def test_what_is_no_file_is_refused_and_stays(tmp_path, monkeypatch, kind):
    path = tmp_path / "special"
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    os.mkfifo("pipe")
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    else:
        makers = {"pipe": os.mkfifo, "folder": Path.mkdir, "loop": lambda own: own.symlink_to(own)}
        makers.get(kind, lambda own: own.symlink_to("pipe"))(path)
    before, names = path.lstat(), sorted(os.listdir())
    for refuse in (lambda: replace_file(path, b"new"), lambda: check_replaceable(path)):
        with pytest.raises(OSError, match="is a folder|a device, a pipe or the like"):
            refuse()
    after = path.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert sorted(os.listdir()) == names


def test_whether_a_file_can_be_replaced_is_found_out_without_a_trace(old):
    check_replaceable(old)
    check_replaceable(old.with_name("other"))
    assert old.read_bytes() == b"old" and os.listdir(old.parent) == ["file"]
    with pytest.raises(OSError, match=r"cannot write .*below \(.*\): give the path of a file"):
        check_replaceable(old / "below")
    with pytest.raises(OSError):
        replace_file(old / "below", b"new")


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


def test_folders_are_made(old):
    replace_file(old.parent / "a" / "b", b"new")
    assert (old.parent / "a" / "b").read_bytes() == b"new"
