"""Files of models that are damaged, foreign or cannot be written: refused, and the old file left alone."""

import os
import pickle
import re
import zipfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gilib
from gilib import persistence
from tests.support.saved import loaded_after_flips, ordinary


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
