"""Labelled tables: published values, files made here in their place, where they are looked up."""

import dataclasses
import lzma
import os
import re
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from experiments.labelled import CLASSIFICATION_SETS, load_classification
from experiments.places import data_directory, find_file, user_cache
from gilib.data import ChecksumError, DataError, sha256_of

TABLE = "1.5,2,g\n3,4,h\n\n5,6,g\n"
HEADED = "ID,Diabetes_binary,a,b\n7,0,1.5,2\n8,1,3,4\n9,0,5,6\n"
X = torch.tensor([[1.5, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)


@pytest.fixture
def tiny(empty_directory, monkeypatch):
    """Write a file in the place of a set's, whose entry has three rows with two inputs."""

    def write(name, text, labels=None):
        sha256 = "" if labels is None else sha256_of(X, torch.tensor(labels).double()[:, None])
        changes = {"num_features": 2, "rows": 3, "sha256": sha256, "ships": False}
        entry = dataclasses.replace(CLASSIFICATION_SETS[name], **changes)
        monkeypatch.setitem(CLASSIFICATION_SETS, name, entry)
        path = empty_directory / "uci-classification" / entry.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_labels_are_in_the_last_or_a_named_column_and_numbers_of_rows_are_dropped(tiny):
    tiny("telescope", TABLE, [1, 0, 1])
    data = load_classification("telescope")
    assert torch.equal(data.x, X) and data.y.tolist() == [1, 0, 1]
    assert data.class_names == ("hadron", "gamma") and data.licence and data.source
    tiny("diabetes", HEADED)
    data = load_classification("diabetes")
    assert torch.equal(data.x, X) and data.y.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TABLE.replace("3,", "x,"), "is not the table of telescope"),
        ("1,2\n", "is not the table of telescope"),
        ("1,2,g\n", "table of shape .1, 2., wanted .3, 2."),
        ("", "table of shape .0, 2."),
    ],
)
def test_damaged_files_are_named(tiny, text, message):
    path = tiny("telescope", text, [1, 0, 1])
    with pytest.raises(DataError, match=f"{re.escape(str(path))} .*{message.split('telescope')[0]}"):
        load_classification("telescope")


def test_other_values_are_refused(tiny):
    tiny("telescope", TABLE.replace("6", "7"), [1, 0, 1])
    with pytest.raises(ChecksumError, match=r"published values of telescope.*save https://archive\.ics"):
        load_classification("telescope")


def test_absent_files_are_asked_for(empty_directory):
    with pytest.raises(DataError, match=r"diabetes is not on this machine: save https://.*GILIB_DATA"):
        load_classification("diabetes")
    with pytest.raises(ValueError, match="unknown set of labelled points 'iris': choose one of 'spambase'"):
        load_classification("iris")
    with pytest.raises(TypeError, match="name must be a str, got int"):
        load_classification(3)


@pytest.mark.parametrize("name", ["spambase", "telescope"])
def test_published_values(name, empty_directory):
    """The numbers are those that their publishers state."""
    data = load_classification(name)
    assert data.sha256 == CLASSIFICATION_SETS[name].sha256
    assert torch.bincount(data.y).tolist() == {"spambase": [2788, 1813], "telescope": [6688, 12332]}[name]


def test_what_ships_is_small():
    packed = [path.read_bytes() for path in (files("experiments") / "files").glob("*.xz")]
    assert len(packed) == sum(entry.ships for entry in CLASSIFICATION_SETS.values()) + 1 == 3
    assert sum(map(len, packed)) < 900_000
    for content in packed:  # what unpacks it needs no more memory than the largest file
        lzma.LZMADecompressor(memlimit=5 << 20).decompress(content)


@pytest.mark.parametrize("variable", ["GILIB_DATA", "cache"])
def test_places_where_files_are_found(empty_directory, variable):
    path = (empty_directory if variable == "GILIB_DATA" else user_cache()) / "yacht" / "data.txt"
    path.parent.mkdir(parents=True)
    path.write_text("a file")
    assert find_file("missing", "yacht/data.txt") == path and find_file("missing") is None


def test_data_directory_is_the_variable_or_the_cache(empty_directory, monkeypatch):
    assert data_directory() == empty_directory
    monkeypatch.setenv("GILIB_DATA", os.path.join("~", "some data"))
    assert data_directory() == Path.home() / "some data"
    for unset in (lambda: monkeypatch.setenv("GILIB_DATA", ""), lambda: monkeypatch.delenv("GILIB_DATA")):
        unset()
        assert data_directory() == user_cache()


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, Path.home() / ".cache" / "gilib"),
        ("win32", {"LOCALAPPDATA": "/c/d", "XDG_CACHE_HOME": "/a/b"}, Path("/c/d/gilib")),
        ("win32", {}, Path.home() / "AppData" / "Local" / "gilib"),
    ],
)
def test_user_cache_follows_the_platform(platform, environ, expected):
    assert user_cache(platform, environ) == expected
