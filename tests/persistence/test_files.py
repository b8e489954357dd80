"""A file is replaced whole or not at all; one that is damaged or foreign is refused."""

import os
import pickle
import re
import signal
import socket
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gilib
from gilib import persistence
from gilib.files import check_replaceable, replace_file, replacing, write_all
from tests.support import forked
from tests.support.saved import loaded_after_flips, ordinary


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


class Bomb:
    """Runs code where a pickle is loaded carelessly."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def saved(path):
    gilib.save(path, *ordinary())


def pickled_bomb(path):
    path.write_bytes(pickle.dumps({"format": Bomb(path.with_suffix(".exploded"))}, protocol=2))


def zipped_bomb(path):
    torch.save({"format": "gilib model 1", "network": Bomb(path.with_suffix(".exploded"))}, path)


def truncated(path):
    saved(path)
    path.write_bytes(path.read_bytes()[:-100])


def edited(**changes):
    def damage(path):
        saved(path)
        content = torch.load(path, weights_only=True)
        torch.save({name: v for name, v in (content | changes).items() if v is not None}, path)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b""), "damaged or not a file of gilib"),
        (truncated, "damaged or not a file of gilib"),
        (pickled_bomb, "damaged or not a file of gilib"),
        (zipped_bomb, "damaged or not a file of gilib"),
        (lambda path: torch.save([1, 2], path), "holds None, wanted 'gilib model 1'"),
        (lambda path: torch.save({"format": "gilib model 9"}, path), "holds 'gilib model 9', wanted 'gilib"),
        (edited(network={"layers": [{"type": "Conv9"}]}), "does not describe a model"),
        (edited(state={}), "does not describe a model"),
        (edited(likelihood={"type": "Cauchy"}), "unknown likelihood 'Cauchy'"),
        (edited(likelihood_state=None), "does not describe a model"),
        (edited(normalisation={"x_mean": torch.zeros(1)}), "does not describe a model"),
    ],
)
def test_other_files_are_refused(damage, message, tmp_path):
    path = tmp_path / "model.pt"
    damage(path)
    with pytest.raises(gilib.persistence.CheckpointError, match=message):
        gilib.load(path)
    assert not path.with_suffix(".exploded").exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(content=st.binary(max_size=60) | st.text("\x80\x02}]()cbRt.qXKIVFGJMNLSU01\n e").map(str.encode))
def test_any_few_bytes_are_refused(content, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "bytes.pt"
    path.write_bytes(content)
    with pytest.raises(gilib.persistence.CheckpointError, match="damaged or not a file of gilib"):
        gilib.load(path)


@pytest.mark.parametrize("age", ["this version", "0.2.0"])
def test_no_flipped_bit_loads_other_numbers(age, tmp_path):
    """A bit of every ninth byte of a small file, and those that say that an entry is a folder."""
    path = tmp_path / "model.pt"
    gilib.save(path, gilib.models.mlp(1, (2,), 1, posterior=gilib.Factorised()), gilib.Gaussian(0.1))
    if age == "0.2.0":  # which wrote no digest
        torch.save(torch.load(path, weights_only=True), path)
        assert gilib.load(path).network.input_shape == (1,)
    content = path.read_bytes()
    bits = [8 * k + k % 8 for k in range(0, len(content), 9)]
    folders = [8 * (entry.start() + 38) + 4 for entry in re.finditer(rb"PK\x01\x02", content)]
    loaded = loaded_after_flips(path, persistence.MODEL_FORMAT, bits + folders)
    assert loaded < len(bits) / (100 if age == "this version" else 2)


def test_a_saved_file_is_an_archive_that_others_can_read(tmp_path):
    path = tmp_path / "model.pt"
    saved(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None and archive.comment.startswith(b"gilib sha256 ")
    assert torch.load(path, weights_only=True)["format"] == persistence.MODEL_FORMAT


def test_save_writes_through_a_link(tmp_path):
    path, link = tmp_path / "model.pt", tmp_path / "latest.pt"
    saved(path)
    link.symlink_to(path.name)
    gilib.save(link, *ordinary(), config={"second": True})
    assert link.is_symlink() and gilib.load(path).config == {"second": True}
    for wrong, error in ((tmp_path / "nowhere", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error):
            gilib.load(wrong)


def test_what_torch_says_of_a_full_disk_is_put_into_words(tmp_path, monkeypatch):
    def full_disk(content, stream):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 187264 vs 187156")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match=r"cannot write .*model.pt \(.*unexpected pos.*\): is the disk full\?"):
        persistence.write(tmp_path / "model.pt", {"format": "any"})
    assert not list(tmp_path.iterdir())
