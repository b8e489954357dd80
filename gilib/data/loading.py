"""Load the tables that ship: parse the file, check shape and checksum."""

from __future__ import annotations

import lzma
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np
import torch

from gilib.arguments import checked
from gilib.data import regression_sets
from gilib.data.dataset import Dataset

SHIPPED, AGAIN = "the copy that ships with gilib", "install gilib again"  # in error messages


class DataError(RuntimeError):
    """A data set could not be found, read or verified; the message says what to do."""


class ChecksumError(DataError):
    """A file was read, but its decoded arrays differ from the published ones."""


def shipped(folder: Traversable, name: str, remedy: str = AGAIN) -> bytes:
    """Return the content of a table in `files` below a folder of a package; `remedy` is for its error."""
    packed = folder / "files" / f"{name}.txt.xz"
    if not packed.is_file():
        raise DataError(f"{packed} is missing: {remedy}")
    return lzma.decompress(packed.read_bytes())


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
    table = numbers(shipped(files("gilib.data"), entry.name), SHIPPED, AGAIN)
    check_shape(entry.name, table, (entry.rows, entry.columns), SHIPPED, AGAIN)
    target = entry.num_features
    dataset = described(entry, table[:, :target], table[:, target : target + 1], num_splits=entry.num_splits)
    return verified(dataset, entry.sha256, SHIPPED, AGAIN)


def numbers(content: bytes, origin: str, remedy: str) -> np.ndarray:
    """Return a table of numbers from the content of its file."""
    try:
        return np.loadtxt(content.decode("ascii").splitlines(), dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise DataError(f"{origin} is not a table of numbers ({error}): {remedy}") from error


def check_shape(name: str, table: np.ndarray, wanted: tuple[int, int], origin: str, remedy: str) -> None:
    """Raise unless the table of a set has these rows and columns."""
    if table.shape != wanted:
        raise DataError(
            f"{origin} holds a table of shape {table.shape}, wanted {wanted} for {name}; it may be "
            f"truncated: {remedy}"
        )


def described(entry: Any, x: np.ndarray, y: np.ndarray, **more: Any) -> Dataset:
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


def verified(dataset: Dataset, sha256: str, origin: str, remedy: str) -> Dataset:
    """Return a data set that has the recorded checksum, if one is recorded."""
    if sha256 and dataset.sha256 != sha256:
        raise ChecksumError(
            f"{origin} does not hold the published values of {dataset.name}: the SHA-256 of its decoded "
            f"arrays is {dataset.sha256}, wanted {sha256}: {remedy}"
        )
    return dataset
