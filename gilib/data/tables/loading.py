"""Load tables: find the file in the package or on this machine, parse it, check shape and checksum."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import torch

from gilib.arguments import checked
from gilib.data import storage
from gilib.data.dataset import Dataset
from gilib.data.storage import ChecksumError, DataError
from gilib.data.tables import regression_sets
from gilib.data.tables.classification_sets import CLASSIFICATION_SETS, ClassificationSet, classification_names
from gilib.data.tables.regression_sets import UciSet
from gilib.validation import check_choice

AGAIN = "install gilib again"
CO2_SHA256 = "58ea31bc59d7b69342444f970307ffdc25960bf5eb8f22d5cbf79075b186f5ad"


@checked
def load_uci(name: str) -> Dataset:
    """Load a UCI regression set with its published splits (Hernández-Lobato & Adams, 2015).

    The package includes all nine: the `data.txt` of the publishers of the splits (Gal & Ghahramani, 2016),
    compressed. The data are from the UCI repository (licence CC BY 4.0), except boston and kin8nm, for which
    no licence is stated; see `source`, `licence` and `note` of the result. The decoded arrays are checked
    against the recorded SHA-256.

    Args:
        name: boston, concrete, energy, kin8nm, naval, power, protein, wine or yacht, or the publishers'
            folder name.

    Returns:
        The data set in original units, with inputs `[N, D]` and target `[N, 1]`, float64.

    Raises:
        ChecksumError: if the package's file holds other values than the published ones.
        DataError: if that file cannot be read, or the package was made without it.
        TypeError: if `name` is not a string.
        ValueError: if there is no such set.

    >>> load_uci("yacht").x.shape
    torch.Size([308, 6])
    """
    entry = regression_sets.find_set(name)
    table = _shipped_numbers(entry.name)
    _check_shape(entry.name, table, (entry.rows, entry.columns), storage.SHIPPED, AGAIN)
    target = entry.num_features
    dataset = _described(entry, table[:, :target], table[:, target : target + 1], num_splits=entry.num_splits)
    return _verified(dataset, entry.sha256, storage.SHIPPED, AGAIN)


def _shipped_numbers(name: str) -> np.ndarray:
    """Return the numbers of a table that ships with the package."""
    content = storage.shipped_table(name)
    if content is None:
        raise DataError(f"this package was made without its data: {AGAIN}")
    try:
        return np.loadtxt(content.decode("ascii").splitlines(), dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise DataError(f"{storage.SHIPPED} is not a table of numbers ({error}): {AGAIN}") from error


@checked
def load_classification(name: str) -> Dataset:
    """Load a table of labelled points of the UCI repository, with 20 splits made by gilib.

    The package includes Spambase and MAGIC (licence CC BY 4.0). `diabetes.csv` is looked up in the folder
    `uci-classification` below the environment variable `GILIB_DATA`, then below the user's cache; so are
    `spambase.data` and `magic04.data` if the package was built without its data. Nothing is downloaded: the
    error names the address. Decoded arrays are checked against the recorded SHA-256, if there is one.

    Args:
        name: "spambase", "telescope" (MAGIC) or "diabetes" (CDC Diabetes Health Indicators).

    Returns:
        The data set in original units, with inputs `[N, D]`, float64, and labels `[N]`.

    Raises:
        ChecksumError: if the file holds other values than the published ones.
        DataError: if the file is not on this machine, or cannot be read.
        TypeError: if `name` is not a string.
        ValueError: if there is no such set.
    """
    check_choice(name, classification_names(), "set of labelled points")
    entry = CLASSIFICATION_SETS[name]
    if content := storage.shipped_table(entry.name):
        return _classification(entry, content, storage.SHIPPED, AGAIN)
    place = f"uci-classification/{entry.file}"
    path = storage.find_file(place)
    if path is None:
        raise DataError(
            f"{name} is not on this machine: save {entry.url} as {storage.data_directory() / place}, or set "
            "the environment variable GILIB_DATA to a folder that has it"
        )
    return _classification(entry, path.read_bytes(), str(path), f"save {entry.url} in its place")


def _classification(entry: ClassificationSet, content: bytes, origin: str, remedy: str) -> Dataset:
    """Parse inputs and labels; `origin` names the file in errors."""
    try:
        rows = [row for row in csv.reader(content.decode("ascii").splitlines()) if row]
        inputs, column = list(range(entry.num_features)), entry.num_features
        if entry.label_column != "last":
            names, rows = rows[0], rows[1:]
            column = names.index(entry.label_column)
            inputs = [k for k, name in enumerate(names) if k != column and name not in entry.dropped]
        x = np.array([[float(row[k]) for k in inputs] for row in rows], dtype=np.float64)
        y = np.array([entry.labels.index(row[column]) for row in rows], dtype=np.int64)
    except (ValueError, IndexError) as error:
        raise DataError(f"{origin} is not the table of {entry.name} ({error}): {remedy}") from error
    x = x.reshape(len(rows), len(inputs))
    _check_shape(entry.name, x, (entry.rows, entry.num_features), origin, remedy)
    return _verified(_described(entry, x, y, class_names=entry.class_names), entry.sha256, origin, remedy)


def load_co2() -> Dataset:
    """Monthly means of carbon dioxide in the air at Mauna Loa, Hawaii, March 1958 to December 2001.

    Means of the weekly averages of Keeling and Whorf (2004), which comes with the package; public domain. Of
    five months there is none. The decoded arrays must have the recorded SHA-256.

    Returns:
        The data set in original units, with the middle of the month in years, `[521, 1]`, and parts per
        million, `[521, 1]`, float64, in the order of time. Who forecasts splits by time; `split` splits at
        random.

    Raises:
        ChecksumError: if the file holds other values.
        DataError: if the package was made without it.

    >>> series = load_co2()
    >>> series.x[0], series.y[0]
    (tensor([1958.2083], dtype=torch.float64), tensor([316.1000], dtype=torch.float64))
    """
    table = _shipped_numbers("co2")
    years = table[:, 0] + (table[:, 1] - 0.5) / 12.0
    dataset = Dataset(
        name="co2",
        x=torch.from_numpy(years[:, None]),
        y=torch.from_numpy(table[:, 2:].copy()),
        description="the middle of a month, in years; carbon dioxide in dry air, parts per million",
        source="Keeling & Whorf (2004), Scripps Institution of Oceanography, by way of statsmodels, "
        "https://www.statsmodels.org/stable/datasets/generated/co2.html",
        licence="public domain",
        note="Monthly means are ours: of all weeks that end in a month, each with the same weight.",
    )
    return _verified(dataset, CO2_SHA256, storage.SHIPPED, AGAIN)


def _check_shape(name: str, table: np.ndarray, wanted: tuple[int, int], origin: str, remedy: str) -> None:
    if table.shape != wanted:
        raise DataError(
            f"{origin} holds a table of shape {table.shape}, wanted {wanted} for {name}; it may be "
            f"truncated: {remedy}"
        )


def _described(entry: UciSet | ClassificationSet, x: np.ndarray, y: np.ndarray, **more: Any) -> Dataset:
    """Return a data set with what the catalogue says of it."""
    return Dataset(
        name=entry.name,
        x=torch.from_numpy(np.ascontiguousarray(x)),
        y=torch.from_numpy(np.ascontiguousarray(y)),
        description=entry.description,
        source=entry.source,
        licence=entry.licence,
        note=entry.note,
        **more,
    )


def _verified(dataset: Dataset, sha256: str, origin: str, remedy: str) -> Dataset:
    """Return a data set that has the recorded checksum, if one is recorded."""
    if sha256 and dataset.sha256 != sha256:
        raise ChecksumError(
            f"{origin} does not hold the published values of {dataset.name}: the SHA-256 of its decoded "
            f"arrays is {dataset.sha256}, wanted {sha256}: {remedy}"
        )
    return dataset
