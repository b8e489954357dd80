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
CO2_SHA256 = "58ea31bc59d7b69342444f970307ffdc25960bf5eb8f22d5cbf79075b186f5ad"


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
    table = _shipped_numbers(entry.name)
    check_shape(entry.name, table, (entry.rows, entry.columns), SHIPPED, AGAIN)
    target = entry.num_features
    dataset = described(entry, table[:, :target], table[:, target : target + 1], num_splits=entry.num_splits)
    return verified(dataset, entry.sha256, SHIPPED, AGAIN)


def _shipped_numbers(name: str) -> np.ndarray:
    content = shipped(files("gilib.data"), name)
    try:
        return np.loadtxt(content.decode("ascii").splitlines(), dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise DataError(f"{SHIPPED} is not a table of numbers ({error}): {AGAIN}") from error


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
    return verified(dataset, CO2_SHA256, SHIPPED, AGAIN)


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
