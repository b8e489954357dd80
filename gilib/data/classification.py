"""Tables of labelled points for classification: a set, its splits, and the loader."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gilib.data import storage
from gilib.data.classification_catalogue import ClassificationSet, find_classification_set
from gilib.data.dataset import sha256_of, split_indices
from gilib.data.errors import ChecksumError, DataError
from gilib.data.normalisation import Normalisation
from gilib.validation import count

__all__ = ["LabelledDataset", "LabelledSplit", "load_classification"]

FOLDER = "uci-classification"


@dataclass(frozen=True, eq=False)
class LabelledSplit:
    """Training and test data with labels; inputs in normalised units.

    Attributes:
        name: name of the data set.
        k: number of the split, counted from 0.
        train_x: ``[N, D]``, normalised.
        train_y: labels, int64 ``[N]``.
        test_x: ``[N*, D]``, normalised with the training data's statistics.
        test_y: labels, int64 ``[N*]``.
        normalisation: fitted to the training data of this split; float64; one target that it leaves alone.
        train_index: rows of the data set that are in ``train_x``, ``[N]``.
        test_index: rows of the data set that are in ``test_x``, ``[N*]``.
    """

    name: str
    k: int
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    normalisation: Normalisation
    train_index: Tensor
    test_index: Tensor


@dataclass(frozen=True, eq=False)
class LabelledDataset:
    """A table of labelled points in original units.

    Attributes:
        name: short name.
        x: inputs, ``[N, D]``, float64.
        y: labels, int64 ``[N]``.
        class_names: what each label stands for.
        num_splits: number of splits, drawn as `split_indices` draws them.
        description: what the inputs and the labels are.
        source: where the data come from.
        licence: under which terms.
        note: what a user should know before using them.

    Raises:
        TypeError: ``x`` is not float64, or ``y`` not int64.
        ValueError: shapes do not fit, or a label has no name.

    Example:
        >>> import torch
        >>> x, y = torch.arange(20.0).double()[:, None], torch.tensor([0, 1] * 10)
        >>> LabelledDataset("parity", x, y, ("even", "odd")).split(0).test_x.shape
        torch.Size([2, 1])
    """

    name: str
    x: Tensor  # [N, D]
    y: Tensor  # [N]
    class_names: tuple[str, ...]
    num_splits: int = 20
    description: str = ""
    source: str = ""
    licence: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit each other."""
        count(self.num_splits, "num_splits")
        if self.x.dtype != torch.float64 or self.y.dtype != torch.int64:
            raise TypeError(f"x must be float64 and y int64, got {self.x.dtype} and {self.y.dtype}")
        if self.x.dim() != 2 or self.y.shape != self.x.shape[:1]:
            raise ValueError(
                f"x must be [N, D] and y [N] with the same N, got {tuple(self.x.shape)} and "
                f"{tuple(self.y.shape)}"
            )
        if len(self.y) and not (int(self.y.min()) >= 0 and int(self.y.max()) < len(self.class_names)):
            raise ValueError(
                f"y must hold labels from 0 to {len(self.class_names) - 1}, one for each class name, got "
                f"{int(self.y.min())} to {int(self.y.max())}"
            )

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the decoded arrays as `sha256_of` defines it, labels as one column of numbers."""
        return sha256_of(self.x, self.y[:, None].double())

    def split(
        self, k: int, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> LabelledSplit:
        """Return split ``k``: nine tenths for training, inputs normalised by their statistics only.

        Args:
            k: number of the split, from 0 to ``num_splits - 1``.
            dtype: of the normalised inputs; statistics are taken in float64 first.
            device: of the data; the CPU if not given.

        Raises:
            TypeError: ``k`` is not an integer.
            ValueError: there is no split ``k``.
        """
        count(k, "the split number", least=0)
        if k >= self.num_splits:
            raise ValueError(f"{self.name} has splits 0 to {self.num_splits - 1}, got {k}")
        train, test = split_indices(len(self.x), k)
        normalisation = Normalisation.fit(self.x[train], self.x.new_zeros(len(train), 1))
        x, y = normalisation.x(self.x).to(device=device, dtype=dtype), self.y.to(device)
        return LabelledSplit(
            self.name, k, x[train], y[train], x[test], y[test], normalisation.to(device=device), train, test
        )


def load_classification(name: str) -> LabelledDataset:
    """Load a table of labelled points of the UCI repository, with 20 splits of ours.

    The files ``spambase.data``, ``magic04.data`` and ``diabetes.csv`` are looked up in the folder
    ``uci-classification`` below the environment variable ``GILIB_DATA``, then below the user's cache. Nothing
    is fetched: an error names the address. Decoded arrays must have the recorded SHA-256, where there is one.

    Args:
        name: "spambase", "telescope" (MAGIC) or "diabetes" (CDC Diabetes Health Indicators).

    Returns:
        The data set in original units: inputs ``[N, D]``, float64, and labels ``[N]``.

    Raises:
        ChecksumError: the file holds other values than the published ones.
        DataError: the file is not here, or cannot be read.
        TypeError: ``name`` is not a string.
        ValueError: there is no such set.
    """
    entry = find_classification_set(name)
    directories = dict.fromkeys((storage.data_directory(), storage.user_cache()))
    paths = [directory / FOLDER / entry.file for directory in directories]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise DataError(
            f"{entry.name} is not on this machine: save {entry.url} as {paths[0]}, or set the environment "
            "variable GILIB_DATA to a folder that has it"
        )
    return _decode(entry, path)


def _decode(entry: ClassificationSet, path: Path) -> LabelledDataset:
    """The content of a file, held to shape and checksum."""
    x, y = _table(entry, path)
    if x.shape != (entry.rows, entry.num_features):
        raise DataError(
            f"{path} holds {x.shape[0]} points with {x.shape[1]} inputs, wanted {entry.rows} with "
            f"{entry.num_features} for {entry.name}; it may be truncated: save {entry.url} in its place"
        )
    dataset = LabelledDataset(
        name=entry.name,
        x=torch.from_numpy(x),
        y=torch.from_numpy(y),
        class_names=entry.class_names,
        description=entry.description,
        source=entry.source,
        licence=entry.licence,
        note=entry.note,
    )
    if entry.sha256 and dataset.sha256 != entry.sha256:
        raise ChecksumError(
            f"{path} does not hold the published values of {entry.name}: the SHA-256 of its decoded arrays "
            f"is {dataset.sha256}, wanted {entry.sha256}: save {entry.url} in its place"
        )
    return dataset


def _table(entry: ClassificationSet, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels as the file has them."""
    try:
        rows = [row for row in csv.reader(path.read_text("ascii").splitlines()) if row]
        inputs, column = list(range(entry.num_features)), entry.num_features
        if entry.has_header:
            names, rows = rows[0], rows[1:]
            column = names.index(entry.label_column)
            inputs = [k for k, name in enumerate(names) if k != column and name not in entry.dropped]
        x = np.array([[float(row[k]) for k in inputs] for row in rows], dtype=np.float64)
        y = np.array([entry.labels.index(row[column]) for row in rows], dtype=np.int64)
    except (ValueError, IndexError) as error:
        raise DataError(
            f"{path} is not the table of {entry.name} ({error}): save {entry.url} in its place"
        ) from error
    return x.reshape(len(rows), len(inputs)), y
