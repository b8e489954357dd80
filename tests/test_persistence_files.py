"""Files of models that are damaged, foreign or cannot be written: refused, and the old file left alone."""

import io
import os
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gilib
from gilib import persistence
from tests.persistence_models import ordinary


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
        for name, value in changes.items():
            if value is None:
                del content[name]
            else:
                content[name] = value
        torch.save(content, path)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_text("hello"), "damaged or not a file of gilib"),
        (lambda path: path.write_bytes(b""), "damaged or not a file of gilib"),
        (lambda path: path.write_bytes(b"q(J0NJ1cc  "), r"damaged or not a file of gilib \(IndexError\)"),
        (lambda path: path.write_bytes(b")GL1\n]"), r"damaged or not a file of gilib \(error\)"),
        (truncated, "damaged or not a file of gilib"),
        (pickled_bomb, "damaged or not a file of gilib"),
        (zipped_bomb, "damaged or not a file of gilib"),
        (lambda path: torch.save([1, 2], path), "holds None, wanted 'gilib model 1'"),
        (
            lambda path: torch.save({"format": "gilib model 9"}, path),
            "holds 'gilib model 9', wanted 'gilib model 1'",
        ),
        (edited(network={"layers": [{"type": "Conv9"}]}), "does not describe a model"),
        (edited(state={}), "does not describe a model"),
        (edited(likelihood={"type": "Poisson"}), "unknown likelihood 'Poisson'"),
        (edited(network=None), "does not describe a model"),
        (edited(normalisation=None), "does not describe a model"),
        (edited(normalisation={"x_mean": torch.zeros(1)}), "does not describe a model"),
        (edited(config=None), "does not describe a model"),
    ],
)
def test_other_files_are_refused(damage, message, tmp_path):
    path = tmp_path / "model.pt"
    damage(path)
    with pytest.raises(gilib.persistence.CheckpointError, match=message):
        gilib.load(path)
    assert not path.with_suffix(".exploded").exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@settings(max_examples=300, deadline=None, derandomize=True)
@given(content=st.binary(max_size=60) | st.text("\x80\x02}]()cbRt.qXKIVFGJMNLSU01\n e").map(str.encode))
def test_any_few_bytes_are_refused(content, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "bytes.pt"
    path.write_bytes(content)
    with pytest.raises(gilib.persistence.CheckpointError, match="damaged or not a file of gilib"):
        gilib.load(path)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        gilib.load(tmp_path / "nowhere.pt")
    with pytest.raises(IsADirectoryError):
        gilib.load(tmp_path)


def test_an_interrupted_save_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    saved(path)
    content = path.read_bytes()

    real = torch.save

    def full_disk(content, stream):
        if isinstance(stream, io.BytesIO):  # memory is not the disk
            return real(content, stream)
        stream.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        saved(path)
    assert path.read_bytes() == content and list(tmp_path.iterdir()) == [path]


def test_what_torch_says_of_a_full_disk_is_put_into_words(tmp_path, monkeypatch):
    def full_disk(content, stream):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 187264 vs 187156")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match=r"cannot write .*model.pt \(.*unexpected pos.*\): is the disk full\?"):
        persistence.write(tmp_path / "model.pt", {"format": "any"})
    assert not list(tmp_path.iterdir())


def test_save_makes_the_folder_and_replaces_the_file(tmp_path):
    path = tmp_path / "a" / "b" / "model.pt"
    saved(path)
    gilib.save(path, *ordinary(), config={"second": True})
    assert gilib.load(path)[3] == {"second": True} and list(path.parent.iterdir()) == [path]
