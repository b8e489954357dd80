"""Load the nine UCI regression sets: find the file, parse it, verify its checksum."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from gilib.arguments import checked
from gilib.data import storage
from gilib.data.dataset import Dataset
from gilib.data.storage import ChecksumError, DataError
from gilib.data.tables import regression_sets
from gilib.data.tables.regression_sets import UciSet


@checked
def load_uci(name: str, download: bool = True) -> Dataset:
    """Load a UCI regression set with its published splits (Hernández-Lobato & Adams, 2015).

    The package includes all nine: the `data.txt` of the publishers of the splits (Gal & Ghahramani, 2016),
    compressed. The data are from the UCI repository (licence CC BY 4.0), except boston and kin8nm, for which
    no licence is stated; see `source`, `licence` and `note` of the result. If the package was built without
    its data, the files are looked up below the environment variable `GILIB_DATA` as `uci/FOLDER/data.txt` or
    `FOLDER/data.txt`, then below the user's cache, and at last downloaded from the publishers' repository.
    The decoded arrays are always checked against the recorded SHA-256.

    Args:
        name: boston, concrete, energy, kin8nm, naval, power, protein, wine or yacht, or the publishers'
            folder name.
        download: whether a file that is not on this machine may be downloaded.

    Returns:
        The data set in original units: inputs `[N, D]` and target `[N, 1]`, float64.

    Raises:
        ChecksumError: if the file holds other values than the published ones.
        DataError: if the file cannot be read, or is not on this machine and `download` is false.
        DownloadError: if the file could not be downloaded.
        TypeError: if `name` is not a string.
        ValueError: if there is no such set.

    >>> load_uci("yacht").x.shape
    torch.Size([308, 6])
    """
    entry = regression_sets.find_set(name)
    content = storage.shipped_table(entry.name)
    if content is not None:
        return _decode(entry, content, storage.SHIPPED)
    path = storage.find_file(entry.folder)
    if path is None:
        path = storage.data_directory() / "uci" / entry.folder / "data.txt"
        if not download:
            raise DataError(
                f"{entry.name} is not on this machine: save {entry.url} as {path}, or set the environment "
                "variable GILIB_DATA to a folder that has it, or pass download=True"
            )
        storage.fetch(entry.url, path, lambda content: _decode(entry, content, entry.url))
    return _decode(entry, path.read_bytes(), str(path))


def _decode(entry: UciSet, content: bytes, origin: str) -> Dataset:
    """Parse the content of a `data.txt`, check shape and checksum; `origin` names the file in errors."""
    remedy = {
        storage.SHIPPED: "install gilib again",
        entry.url: "that file was changed or altered on its way; report this to the authors of gilib",
    }.get(
        origin,
        f"delete that file, then load again to fetch a fresh copy, or save {entry.url} in its place",
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file is reported below, with its remedy
            table = np.loadtxt(content.decode("ascii").splitlines(), dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise DataError(f"{origin} is not a table of numbers ({error}): {remedy}") from error
    if table.shape != (entry.rows, entry.columns):
        raise DataError(
            f"{origin} holds a table of shape {table.shape}, wanted {(entry.rows, entry.columns)} for "
            f"{entry.name}; it may be truncated: {remedy}"
        )
    target = entry.num_features
    dataset = Dataset(
        name=entry.name,
        x=torch.from_numpy(np.ascontiguousarray(table[:, :target])),
        y=torch.from_numpy(np.ascontiguousarray(table[:, target : target + 1])),
        num_splits=entry.num_splits,
        description=entry.description,
        source=entry.source,
        licence=entry.licence,
        note=entry.note,
    )
    if dataset.sha256 != entry.sha256:
        raise ChecksumError(
            f"{origin} does not hold the published values of {entry.name}: the SHA-256 of its decoded arrays "
            f"is {dataset.sha256}, wanted {entry.sha256}: {remedy}"
        )
    return dataset
