"""The tables that ship: published values, splits and statements; files made here in their place."""

import dataclasses
import lzma
import os
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from gilib.data import (
    ChecksumError,
    DataError,
    Dataset,
    classification_names,
    load_classification,
    load_co2,
    load_uci,
    sha256_of,
    split_indices,
    storage,
    uci_names,
)
from gilib.data.tables.classification_sets import CLASSIFICATION_SETS
from gilib.data.tables.loading import CO2_SHA256
from gilib.data.tables.regression_sets import UCI_SETS

# Rows and inputs as published; mean test RMSE of least squares over the published splits, original units.
SETS = {
    "boston": (506, 13, 4.588),
    "concrete": (1030, 8, 10.314),
    "energy": (768, 8, 3.056),
    "kin8nm": (8192, 8, 0.2023),
    "naval": (11934, 16, 0.005897),
    "power": (9568, 4, 4.613),
    "protein": (45730, 9, 5.213),
    "wine": (1599, 11, 0.6544),
    "yacht": (308, 6, 8.969),
}


@pytest.fixture(scope="module")
def published() -> Path:
    """The folder ``uci`` with the publishers' files, index files included."""
    chosen = os.environ.get("GILIB_DATA")
    if not chosen:
        pytest.skip("GILIB_DATA is not set: the published index files do not ship with gilib")
    return Path(chosen) / "uci"


@pytest.fixture(scope="module", params=SETS)
def dataset(request) -> Dataset:
    """Each of the nine sets."""
    return load_uci(request.param)


def read_numbers(path: Path) -> np.ndarray:
    return np.array(path.read_text().split(), dtype=np.float64).astype(np.int64)


def test_shape_checksum_and_provenance(dataset):
    rows, features, _ = SETS[dataset.name]
    assert dataset.x.shape == (rows, features) and dataset.y.shape == (rows, 1)
    assert dataset.x.dtype == dataset.y.dtype == torch.float64
    assert dataset.sha256 == UCI_SETS[dataset.name].sha256
    assert dataset.description and dataset.source and dataset.licence
    assert ("Ethical problem" in dataset.note) == (dataset.name == "boston")
    assert dataset.num_splits == (5 if dataset.name == "protein" else 20)


def test_every_published_split_regenerates(dataset, published):
    folder = published / UCI_SETS[dataset.name].folder
    assert int(float((folder / "n_splits.txt").read_text())) == dataset.num_splits
    for k in range(dataset.num_splits):
        split = dataset.split(k)
        assert np.array_equal(split.train_index.numpy(), read_numbers(folder / f"index_train_{k}.txt"))
        assert np.array_equal(split.test_index.numpy(), read_numbers(folder / f"index_test_{k}.txt"))


def test_columns_are_those_of_the_published_index_files(dataset, published):
    folder = published / UCI_SETS[dataset.name].folder
    table = np.loadtxt(folder / "data.txt")
    assert np.array_equal(dataset.x.numpy(), table[:, read_numbers(folder / "index_features.txt")])
    assert np.array_equal(dataset.y.numpy(), table[:, read_numbers(folder / "index_target.txt")])


def test_least_squares_error_guards_columns_splits_and_units(dataset):
    errors = []
    for k in range(dataset.num_splits):
        split = dataset.split(k, dtype=torch.float64)
        weights = np.linalg.lstsq(split.train_x.numpy(), split.train_y.numpy(), rcond=None)[0]  # means are 0
        prediction = split.normalisation.invert_y(split.test_x @ torch.from_numpy(weights))
        residual = prediction - split.test_y_raw
        errors.append(residual.square().mean().sqrt().item())
    printed = SETS[dataset.name][2]
    digits = len(f"{printed:g}".replace(".", "").lstrip("0"))
    assert float(f"{np.mean(errors):.{digits}g}") == printed


def test_shipped_files_are_the_published_bytes(published):
    for entry in UCI_SETS.values():
        assert storage.shipped_table(entry.name) == (published / entry.folder / "data.txt").read_bytes()


def test_every_set_but_the_survey_ships_and_all_are_small():
    folder = files("gilib.data") / "files"
    packed = {path.name: path.read_bytes() for path in folder.iterdir() if path.name.endswith(".xz")}
    names = {*uci_names(), *classification_names(), "co2"} - {"diabetes"}
    assert set(packed) == {f"{name}.txt.xz" for name in names}
    assert sum(map(len, packed.values())) < 2_750_000
    for content in packed.values():  # what unpacks it needs no more memory than the largest file
        lzma.LZMADecompressor(memlimit=5 << 20).decompress(content)


def test_duplicates_stated_in_the_notes(dataset):
    table = torch.cat([dataset.x, dataset.y], 1)
    repeats = len(table) - len(torch.unique(table, dim=0))
    stated = {"concrete": 25, "power": 41, "protein": 1711, "wine": 240}.get(dataset.name, 0)
    assert repeats == stated and (not stated or f"{stated} rows repeat" in dataset.note)


def test_every_folder_name_is_an_alias():
    for entry in UCI_SETS.values():
        assert load_uci(entry.folder.upper()).name == entry.name
    with pytest.raises(ValueError, match="no UCI set 'iris': choose one of boston, concrete, .*, wine"):
        load_uci("iris")


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
    for load in (load_classification, load_uci):
        with pytest.raises(TypeError, match="name must be a str, got int"):
            load(3)


@pytest.mark.parametrize("name", ["spambase", "telescope"])
def test_published_values(name, empty_directory):
    """The numbers are those that their publishers state."""
    data = load_classification(name)
    assert data.sha256 == CLASSIFICATION_SETS[name].sha256
    assert torch.bincount(data.y).tolist() == {"spambase": [2788, 1813], "telescope": [6688, 12332]}[name]


def test_labels_are_split_as_they_are():
    x = torch.arange(40.0).double().reshape(20, 2) ** 2
    data = Dataset("squares", x, torch.arange(20) % 2, 3, class_names=("even", "odd"))
    split, (train, test) = data.split(2, torch.float64), split_indices(20, 2)
    assert torch.equal(split.train_y, data.y[train]) and torch.equal(split.test_y, data.y[test])


def test_months_are_in_order_and_five_are_missing():
    data = load_co2()
    months = (data.x[:, 0] * 12.0 - 0.5).round().long()
    assert torch.allclose(data.x[:, 0], (months.double() + 0.5) / 12.0, rtol=0.0, atol=1e-9)
    wanted = torch.arange(1958 * 12 + 2, 2002 * 12)  # March 1958 to December 2001
    assert bool((months.diff() > 0).all()) and len(wanted) - len(months) == 5
    assert set(months.tolist()) < set(wanted.tolist())
    assert months[0] == wanted[0] and months[-1] == wanted[-1]
    assert data.licence == "public domain" and "Keeling" in data.source and 315 < data.y[0] < 317
    assert data.sha256 == sha256_of(data.x, data.y) == CO2_SHA256


def test_other_values_and_a_missing_file(monkeypatch):
    content = storage.shipped_table("co2")
    monkeypatch.setattr(storage, "shipped_table", lambda name: content.replace(b"316.10", b"316.11"))
    with pytest.raises(ChecksumError, match="published values of co2.*install gilib again"):
        load_co2()
    monkeypatch.setattr(storage, "shipped_table", lambda name: None)
    for load in (load_co2, lambda: load_uci("yacht")):
        with pytest.raises(DataError, match="made without its data: install gilib again"):
            load()
