"""The tables that ship: published values, splits and statements; files made here in their place."""

import lzma
import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from gilib.data import ChecksumError, DataError, Dataset, load_uci, loading, split_indices
from gilib.data.loading import shipped
from gilib.data.regression_sets import UCI_SETS

FOLDER = files("gilib.data")

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
        assert shipped(FOLDER, entry.name) == (published / entry.folder / "data.txt").read_bytes()


def test_every_set_ships_and_all_are_small():
    packed = {path.name: path.read_bytes() for path in (FOLDER / "files").iterdir()}
    assert set(packed) == {f"{name}.txt.xz" for name in UCI_SETS}
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


def test_labels_are_split_as_they_are():
    x = torch.arange(40.0).double().reshape(20, 2) ** 2
    data = Dataset("squares", x, torch.arange(20) % 2, 3, class_names=("even", "odd"))
    split, (train, test) = data.split(2, torch.float64), split_indices(20, 2)
    assert torch.equal(split.train_y, data.y[train]) and torch.equal(split.test_y, data.y[test])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda text: text[:5001], DataError, "is not a table of numbers"),
        (lambda text: text[: text.rindex(b"\n", 0, 5000) + 1], DataError, r"\(\d+, 7\), wanted \(308, 7\)"),
        (lambda text: text.replace(b"0.125 0.11\n", b"0.125 0.12\n", 1), ChecksumError, "yacht.*12a59d1c"),
    ],
)
def test_a_damaged_package_is_named_with_its_remedy(monkeypatch, change, error, message):
    content = change(shipped(FOLDER, "yacht"))
    monkeypatch.setattr(loading, "shipped", lambda folder, name: content)
    with pytest.raises(error, match=f"copy that ships with gilib .*{message}.*: install gilib again"):
        load_uci("yacht")


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="yacht.txt.xz is missing: install gilib again"):
        shipped(tmp_path, "yacht")
    with pytest.raises(TypeError, match="name must be a str, got int"):
        load_uci(3)
