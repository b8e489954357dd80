"""Load tables of labelled points from the package or from this machine."""

from __future__ import annotations

import csv

import numpy as np
import torch

from gilib.data import storage
from gilib.data.dataset import Dataset
from gilib.data.storage import ChecksumError, DataError
from gilib.data.tables.classification_sets import ClassificationSet, find_classification_set

FOLDER = "uci-classification"


def load_classification(name: str) -> Dataset:
    """Load a table of labelled points of the UCI repository, with 20 splits made by gilib.

    The package includes Spambase and MAGIC (licence CC BY 4.0). `diabetes.csv` is looked up in the folder
    `uci-classification` below the environment variable `GILIB_DATA`, then below the user's cache; so are
    `spambase.data` and `magic04.data` if the package was built without its data. Nothing is downloaded: the
    error names the address. Decoded arrays are checked against the recorded SHA-256, if there is one.

    Args:
        name: "spambase", "telescope" (MAGIC) or "diabetes" (CDC Diabetes Health Indicators).

    Returns:
        The data set in original units: inputs `[N, D]`, float64, and labels `[N]`.

    Raises:
        ChecksumError: if the file holds other values than the published ones.
        DataError: if the file is not on this machine, or cannot be read.
        TypeError: if `name` is not a string.
        ValueError: if there is no such set.
    """
    entry = find_classification_set(name)
    content = storage.shipped_table(entry.name)
    if content is not None:
        return _decode(entry, content, storage.SHIPPED)
    directories = dict.fromkeys((storage.data_directory(), storage.user_cache()))
    paths = [directory / FOLDER / entry.file for directory in directories]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise DataError(
            f"{entry.name} is not on this machine: save {entry.url} as {paths[0]}, or set the environment "
            "variable GILIB_DATA to a folder that has it"
        )
    return _decode(entry, path.read_bytes(), str(path))


def _decode(entry: ClassificationSet, content: bytes, origin: str) -> Dataset:
    """Parse the content of a file and check shape and checksum; `origin` names the file in errors."""
    remedy = "install gilib again" if origin == storage.SHIPPED else f"save {entry.url} in its place"
    try:
        x, y = _table(entry, content)
    except (ValueError, IndexError) as error:
        raise DataError(f"{origin} is not the table of {entry.name} ({error}): {remedy}") from error
    if x.shape != (entry.rows, entry.num_features):
        raise DataError(
            f"{origin} holds {x.shape[0]} points with {x.shape[1]} inputs, wanted {entry.rows} with "
            f"{entry.num_features} for {entry.name}; it may be truncated: {remedy}"
        )
    dataset = Dataset(
        name=entry.name,
        x=torch.from_numpy(x),
        y=torch.from_numpy(y),
        description=entry.description,
        source=entry.source,
        licence=entry.licence,
        note=entry.note,
        class_names=entry.class_names,
    )
    if entry.sha256 and dataset.sha256 != entry.sha256:
        raise ChecksumError(
            f"{origin} does not hold the published values of {entry.name}: the SHA-256 of its decoded arrays "
            f"is {dataset.sha256}, wanted {entry.sha256}: {remedy}"
        )
    return dataset


def _table(entry: ClassificationSet, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Parse inputs `[N, D]` and labels `[N]`."""
    rows = [row for row in csv.reader(content.decode("ascii").splitlines()) if row]
    inputs, column = list(range(entry.num_features)), entry.num_features
    if entry.has_header:
        names, rows = rows[0], rows[1:]
        column = names.index(entry.label_column)
        inputs = [k for k, name in enumerate(names) if k != column and name not in entry.dropped]
    x = np.array([[float(row[k]) for k in inputs] for row in rows], dtype=np.float64)
    y = np.array([entry.labels.index(row[column]) for row in rows], dtype=np.int64)
    return x.reshape(len(rows), len(inputs)), y
