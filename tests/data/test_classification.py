"""Tables of labelled points: files made here, and the published ones."""

import dataclasses
import re

import pytest
import torch

from gilib.data import (
    ChecksumError,
    DataError,
    Dataset,
    classification_names,
    load_classification,
    sha256_of,
    split_indices,
    storage,
)
from gilib.data.tables.classification_sets import CLASSIFICATION_SETS

TABLE = "1.5,2,g\n3,4,h\n\n5,6,g\n"
HEADED = "ID,Diabetes_binary,a,b\n7,0,1.5,2\n8,1,3,4\n9,0,5,6\n"
X = torch.tensor([[1.5, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)


@pytest.fixture
def tiny(empty_directory, monkeypatch):
    """Write a file in the place of a set's, whose entry has three rows with two inputs."""

    def write(name, text, labels=None):
        sha256 = "" if labels is None else sha256_of(X, torch.tensor(labels).double()[:, None])
        entry = dataclasses.replace(CLASSIFICATION_SETS[name], num_features=2, rows=3, sha256=sha256)
        monkeypatch.setitem(CLASSIFICATION_SETS, name, entry)
        path = empty_directory / "uci-classification" / entry.file
        path.parent.mkdir(parents=True)
        path.write_text(text)
        monkeypatch.setattr(storage, "shipped_table", lambda name: None)
        return path

    return write


def test_labels_are_in_the_last_column(tiny):
    tiny("telescope", TABLE, [1, 0, 1])
    data = load_classification("telescope")
    assert torch.equal(data.x, X) and data.y.tolist() == [1, 0, 1]
    assert data.class_names == ("hadron", "gamma") and data.licence and data.source


def test_labels_are_in_a_named_column_and_numbers_of_rows_are_dropped(tiny):
    tiny("diabetes", HEADED)
    data = load_classification("diabetes")
    assert torch.equal(data.x, X) and data.y.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TABLE.replace("h", "i"), "is not the table of telescope"),
        (TABLE.replace("3,", "x,"), "is not the table of telescope"),
        ("1,2\n", "is not the table of telescope"),
        ("1,2,g\n", "holds 1 points with 2 inputs, wanted 3 with 2"),
        ("", "holds 0 points"),
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
    with pytest.raises(TypeError, match="must be a string"):
        load_classification(3)


@pytest.mark.parametrize("name", ["spambase", "telescope"])
def test_published_values(name, empty_directory):
    """The numbers are those that their publishers state."""
    data = load_classification(name)
    assert data.sha256 == CLASSIFICATION_SETS[name].sha256
    assert torch.bincount(data.y).tolist() == {"spambase": [2788, 1813], "telescope": [6688, 12332]}[name]


def test_splits_are_normalised_by_training_data():
    x = torch.arange(40.0).double().reshape(20, 2) ** 2
    data = Dataset("squares", x, torch.arange(20) % 2, 3, class_names=("even", "odd"))
    split, (train, test) = data.split(2, torch.float64), split_indices(20, 2)
    assert torch.equal(split.train_index, train) and torch.equal(split.test_index, test)
    expected = (x[test] - x[train].mean(0)) / x[train].std(0)
    assert torch.allclose(split.test_x, expected, rtol=0, atol=1e-12)
    assert torch.equal(split.train_y, data.y[train]) and torch.equal(split.test_y, data.y[test])
    with pytest.raises(ValueError, match="squares has splits 0 to 2, got 3"):
        data.split(3)


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (X.float(), [0, 1, 0], TypeError, "x of a data set must be float64"),
        (X, [0, 1], ValueError, "with the same N"),
        (X, [0, 1, 2], ValueError, "labels from 0 to 1"),
        (X, [[0.0], [1.0], [0.0]], TypeError, "float64, or int64 for labels, got torch.float32"),
    ],
)
def test_arrays_must_fit(x, y, error, message):
    with pytest.raises(error, match=message):
        Dataset("wrong", x, torch.tensor(y), class_names=("a", "b"))


def test_every_set_says_where_it_is_from():
    assert classification_names() == tuple(CLASSIFICATION_SETS)
    for entry in CLASSIFICATION_SETS.values():
        assert entry.url.startswith("https://") and len(entry.labels) == len(entry.class_names) == 2
