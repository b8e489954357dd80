import lzma
import os
import subprocess
import sys
import warnings
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from gilib.data import Dataset, classification_names, load_uci, uci_names
from gilib.data.storage import shipped_table
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
    return load_uci(request.param, download=False)


def read_numbers(path: Path) -> np.ndarray:
    return np.array(path.read_text().split(), dtype=np.float64).astype(np.int64)


def test_names():
    assert uci_names() == tuple(SETS)


def test_shape_checksum_and_provenance(dataset):
    rows, features, _ = SETS[dataset.name]
    assert dataset.x.shape == (rows, features) and dataset.y.shape == (rows, 1)
    assert dataset.x.dtype == dataset.y.dtype == torch.float64
    assert dataset.sha256 == UCI_SETS[dataset.name].sha256
    assert dataset.description and dataset.source and dataset.licence
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
        assert shipped_table(entry.name) == (published / entry.folder / "data.txt").read_bytes()


def test_every_set_but_the_survey_ships_and_all_are_small():
    folder = files("gilib.data") / "files"
    packed = {path.name: path.read_bytes() for path in folder.iterdir() if path.name.endswith(".xz")}
    names = {*uci_names(), *classification_names(), "co2"} - {"diabetes"}
    assert set(packed) == {f"{name}.txt.xz" for name in names}
    assert sum(map(len, packed.values())) < 2_750_000
    for content in packed.values():  # what unpacks it needs no more memory than the largest file
        lzma.LZMADecompressor(memlimit=5 << 20).decompress(content)


def test_constant_columns_of_naval_become_zero():
    split = load_uci("naval", download=False).split(0)
    for column in (8, 11):
        assert float(split.train_x[:, column].abs().max()) == 0.0
        assert split.normalisation.x_std[column] == 1.0


def test_duplicates_stated_in_the_notes(dataset):
    table = torch.cat([dataset.x, dataset.y], 1)
    repeats = len(table) - len(torch.unique(table, dim=0))
    stated = {"concrete": 25, "power": 41, "protein": 1711, "wine": 240}.get(dataset.name, 0)
    assert repeats == stated and (not stated or f"{stated} rows repeat" in dataset.note)


def test_boston_names_its_ethical_problem_and_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        boston = load_uci("boston")
    for word in ("Ethical problem", "racist", "scikit-learn"):
        assert word in boston.note


@pytest.mark.parametrize("alias", ["wine-quality-red", "Wine", "WINE-QUALITY-RED"])
def test_publishers_folder_names_are_accepted(alias):
    assert load_uci(alias).name == "wine"


def test_every_folder_name_is_an_alias():
    for entry in UCI_SETS.values():
        assert load_uci(entry.folder, download=False).name == entry.name


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="no UCI set 'iris': choose one of boston, concrete, .*, wine"):
        load_uci("iris")


def test_name_must_be_a_string():
    with pytest.raises(TypeError, match="name must be a str, got int"):
        load_uci(3)


def test_import_is_cheap_and_pulls_in_neither_network_nor_tables():
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import gilib.data; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new & {'pandas', 'scipy', 'tqdm', 'sklearn', 'requests', 'gzip', 'lzma'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
