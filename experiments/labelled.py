"""Labelled tables of the UCI repository: contents, sources and checksums, and how they are loaded."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from experiments.places import data_directory, find_file
from gilib.arguments import checked
from gilib.data import DataError, Dataset
from gilib.data.loading import check_shape, described, shipped, verified
from gilib.data.regression_sets import CC_BY
from gilib.validation import check_choice

__all__ = ["classification_names", "load_classification"]

UCI = "UCI Machine Learning Repository, https://doi.org/"
KEPT = "the copy in experiments/files", "take that folder from a fresh checkout"  # in error messages


@dataclass(frozen=True)
class ClassificationSet:
    """One entry of the catalogue."""

    name: str  # short name
    file: str  # file name
    url: str  # address of the file
    num_features: int  # number of inputs D
    class_names: tuple[str, ...]  # name of each class
    labels: tuple[str, ...]  # spelling of each label in the file
    rows: int  # number of rows
    sha256: str  # checksum of the decoded inputs and labels; empty if the authors of gilib had no copy
    description: str  # meaning of the inputs and the labels
    source: str  # authors and address of the data
    label_column: str = "last"  # "last", or the name of the label column in a file with a header
    dropped: tuple[str, ...] = ()  # columns of a file with a header that are neither inputs nor labels
    licence: str = CC_BY  # licence of the data
    note: str = ""  # warnings for users of the data
    ships: bool = True  # whether a checkout includes the file


_SETS = (
    ClassificationSet(
        name="spambase",
        file="spambase.data",
        url="https://archive.ics.uci.edu/ml/machine-learning-databases/spambase/spambase.data",
        num_features=57,
        class_names=("mail", "spam"),
        labels=("0", "1"),
        rows=4601,
        sha256="0c962da5173b9afb3fdd3842794db135119e4b24c7b1f6a3ab181b74f9ae2fe6",
        description="frequencies of 48 words and 6 characters in an electronic letter, and the lengths of "
        "its runs of capital letters; whether it is spam",
        source=f"Hopkins, Reeber, Forman & Suermondt (1999); {UCI}10.24432/C53G6X",
        note="The letters came to one company: words such as 'george' and '650' mark its own mail.",
    ),
    ClassificationSet(
        name="telescope",
        file="magic04.data",
        url="https://archive.ics.uci.edu/ml/machine-learning-databases/magic/magic04.data",
        num_features=10,
        class_names=("hadron", "gamma"),
        labels=("h", "g"),
        rows=19020,
        sha256="130ac29f70bf0513fd636f73406fa1267711007a86d220e4b53f0eb84d2accde",
        description="ten shape parameters of a shower's image in the MAGIC telescope, simulated; whether a "
        "gamma ray made it",
        source=f"Bock et al. (2004); {UCI}10.24432/C52C8B",
        note="The simulation has more gamma rays than hadrons; in the sky it is the other way round.",
    ),
    ClassificationSet(
        name="diabetes",
        file="diabetes.csv",
        url="https://archive.ics.uci.edu/static/public/891/data.csv",
        num_features=21,
        class_names=("none", "diabetes or prediabetes"),
        labels=("0", "1"),
        rows=253680,
        sha256="",
        description="21 answers to a survey on health in the United States, 2015; whether the person has "
        "diabetes or prediabetes",
        source=f"Centers for Disease Control and Prevention, BRFSS 2015; {UCI}10.24432/C53919",
        label_column="Diabetes_binary",
        dropped=("ID",),
        licence="as stated there",
        ships=False,
        note="The authors of gilib had no copy: there is no checksum to hold a file to, only its shape. One "
        "person in seven is positive.",
    ),
)
CLASSIFICATION_SETS = {entry.name: entry for entry in _SETS}


def classification_names() -> tuple[str, ...]:
    """Return the names that `load_classification` accepts.

    >>> classification_names()
    ('spambase', 'telescope', 'diabetes')
    """
    return tuple(CLASSIFICATION_SETS)


@checked
def load_classification(name: str) -> Dataset:
    """Load a table of labelled points of the UCI repository, with 20 splits made by gilib.

    Spambase and MAGIC (licence CC BY 4.0) are part of a checkout. `diabetes.csv` is looked up in the folder
    `uci-classification` below the environment variable `GILIB_DATA`, then below the user's cache. Nothing is
    downloaded: the error names the address. Decoded arrays are checked against the recorded SHA-256, if there
    is one.

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
    if entry.ships:
        return _classification(entry, shipped(files("experiments"), entry.name, KEPT[1]), *KEPT)
    place = f"uci-classification/{entry.file}"
    path = find_file(place)
    if path is None:
        raise DataError(
            f"{name} is not on this machine: save {entry.url} as {data_directory() / place}, or set "
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
    check_shape(entry.name, x, (entry.rows, entry.num_features), origin, remedy)
    return verified(described(entry, x, y, class_names=entry.class_names), entry.sha256, origin, remedy)
