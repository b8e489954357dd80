"""Tables for regression or classification in original units, and their splits into training and test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gilib.arguments import Checked, Count, FloatingType, checked
from gilib.data.normalisation import Normalisation
from gilib.validation import check_is_tensor


@checked
def sha256_of(x: Tensor, y: Tensor) -> str:
    r"""Return the SHA-256 of decoded arrays, which depends on neither the machine nor the file format.

    The hash covers the ASCII header ``"x <f8 N D\ny <f8 N O\n"`` with the sizes in decimal, then the values
    of `x`, then the values of `y`, each as contiguous row-major little-endian float64.

    Args:
        x: inputs, `[N, D]`.
        y: targets, `[N, O]`.

    Raises:
        ValueError: if an array is not two-dimensional, or the row counts differ.

    >>> sha256_of(torch.zeros(2, 1), torch.ones(2, 1))[:16]
    '23305c7954c8181f'
    """
    _check_pair(x, y)
    digest = hashlib.sha256()
    for name, value in (("x", x), ("y", y)):
        digest.update(f"{name} <f8 {value.shape[0]} {value.shape[1]}\n".encode("ascii"))
    for value in (x, y):
        array = value.detach().to(device="cpu", dtype=torch.float64).numpy()
        digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return digest.hexdigest()


@checked
def split_indices(num_points: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the training and test rows of published split `k` of a data set with `num_points` rows.

    The publishers seed NumPy's legacy generator with 1 once per data set, draw one permutation per split, and
    take its first `round(0.9 N)` rows for training (Hernández-Lobato & Adams, 2015). Split `k` therefore
    needs the `k` permutations before it. NumPy's global generator is neither read nor changed.

    Args:
        num_points: number of rows N of the data set.
        k: number of the split, counted from 0.

    Returns:
        Row numbers for training `[round(0.9 N)]` and for testing `[N - round(0.9 N)]`, int64, in published
        order.

    >>> train, test = split_indices(10, 0)
    >>> train.tolist(), test.tolist()
    ([2, 9, 6, 4, 0, 3, 1, 7, 8], [5])
    """
    generator = np.random.RandomState(1)
    for _ in range(k + 1):
        permutation = generator.permutation(num_points)
    cut = round(0.9 * num_points)
    rows = torch.from_numpy(permutation.astype(np.int64))
    return rows[:cut], rows[cut:]


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test data in normalised units, with the normalisation that restores original units.

    Labels, int64 `[N]`, are not normalised: `test_y_raw` then equals `test_y`.

    Attributes:
        name: name of the data set.
        k: number of the split, counted from 0.
        train_x: `[N, D]`, normalised.
        train_y: `[N, O]`, normalised; or labels `[N]`.
        test_x: `[N*, D]`, normalised with the training data's statistics.
        test_y: `[N*, O]`, normalised with the training data's statistics; or labels `[N*]`.
        test_x_raw: `[N*, D]`, float64, original units, as `gilib.predict` expects with a normalisation.
        test_y_raw: `[N*, O]`, float64, original units, for metrics; or labels `[N*]`.
        normalisation: fitted to the training data of this split; float64.
        train_index: rows of the data set that are in `train_x`, `[N]`.
        test_index: rows of the data set that are in `test_x`, `[N*]`.
    """

    name: str
    k: int
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    test_x_raw: Tensor
    test_y_raw: Tensor
    normalisation: Normalisation
    train_index: Tensor
    test_index: Tensor


@dataclass(frozen=True, eq=False)
class Dataset(Checked):
    """A table of inputs with real targets or labels, in original units.

    Attributes:
        name: short name.
        x: inputs, `[N, D]`, float64.
        y: targets, `[N, O]`, float64; or labels, `[N]`, int64, from 0.
        num_splits: number of splits; `split_indices` generates them.
        description: meaning of the inputs and the target.
        source: origin of the data.
        licence: licence of the data.
        note: warnings for users of the data.
        class_names: name of each class; empty if the targets are real.

    Raises:
        TypeError: if `x` is not float64, or `y` neither float64 nor int64.
        ValueError: if shapes do not fit, or a label has no name.

    >>> x, y = torch.arange(20.0).double()[:, None], torch.tensor([0, 1] * 10)
    >>> Dataset("parity", x, y, class_names=("even", "odd")).split(0).test_x.shape
    torch.Size([2, 1])
    """

    name: str
    x: Tensor  # [N, D]
    y: Tensor  # [N, O], or [N]
    num_splits: Count = 20
    description: str = ""
    source: str = ""
    licence: str = ""
    note: str = ""
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_is_tensor(self.x, "x")
        check_is_tensor(self.y, "y")
        _check_pair(self.x, self._columns)
        if self.x.dtype != torch.float64:
            raise TypeError(
                f"x of a data set must be float64, got {self.x.dtype}: pass x.double(); split() converts to "
                "the dtype of training"
            )
        if self.y.dtype not in (torch.float64, torch.int64):
            raise TypeError(
                f"y of a data set must be float64, or int64 for labels, got {self.y.dtype}: pass y.double() "
                "or y.long(); split() converts to the dtype of training"
            )
        if not self.has_labels and self.class_names:
            raise ValueError("class_names are for labels: pass y as int64 [N], with y.long()")
        if self.has_labels and len(self.y):
            _check_labels(int(self.y.min()), int(self.y.max()), len(self.class_names))

    @property
    def has_labels(self) -> bool:
        """Whether `y` holds labels."""
        return self.y.dtype == torch.int64

    @property
    def _columns(self) -> Tensor:
        """The targets `[N, O]`; labels become one column of float64 numbers."""
        return self.y[..., None].double() if self.has_labels else self.y

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the arrays, by `sha256_of`; labels count as one column of numbers."""
        return sha256_of(self.x, self._columns)

    @checked
    def split(
        self, k: int, dtype: FloatingType = torch.float32, device: torch.device | str | None = None
    ) -> Split:
        """Return split `k`: nine tenths for training, normalised by the statistics of the training data.

        Args:
            k: number of the split, from 0 to `num_splits - 1`.
            dtype: dtype of the normalised data; the statistics are computed in float64.
            device: device of the data; the CPU if not given.

        Raises:
            TypeError: if `dtype` is not a floating-point type.
            ValueError: if there is no split `k`, or no row to test on.

        >>> import gilib.data
        >>> split = gilib.data.load_uci("yacht").split(3)
        >>> bool(split.train_y.mean().abs() < 1e-6)
        True
        """
        if not 0 <= k < self.num_splits:
            raise ValueError(
                f"{self.name} has splits 0 to {self.num_splits - 1}, got {k}: "
                f"choose one of range({self.num_splits})"
            )
        train, test = split_indices(len(self.x), k)
        if not len(test):
            raise ValueError(f"{self.name} has {len(self.x)} rows, but a split needs five")
        targets = None if self.has_labels else self.y[train]
        normalisation = Normalisation.fit(self.x[train], targets)
        x = normalisation.x(self.x).to(device=device, dtype=dtype)  # [N, D]
        y = normalisation.y(self.y).to(device=device, dtype=None if self.has_labels else dtype)
        return Split(
            name=self.name,
            k=int(k),
            train_x=x[train],
            train_y=y[train],
            test_x=x[test],
            test_y=y[test],
            test_x_raw=self.x[test].to(device=device),
            test_y_raw=self.y[test].to(device=device),
            normalisation=normalisation.to(device=device),
            train_index=train,
            test_index=test,
        )


def _check_pair(x: Tensor, y: Tensor) -> None:
    if x.dim() != 2 or y.dim() != 2 or len(x) != len(y):
        raise ValueError(
            f"x must be [N, D] and y [N, O], or labels [N], with the same N, got {tuple(x.shape)} and "
            f"{tuple(y.shape)}: reshape a vector of numbers with [:, None]"
        )


def _check_labels(least: int, largest: int, classes: int) -> None:
    if not classes:
        raise ValueError(f"y holds labels, {least} to {largest}: pass class_names, one for every label")
    if least < 0 or largest >= classes:
        raise ValueError(
            f"y must hold labels from 0 to {classes - 1}, one for each class name, got {least} to {largest}: "
            "pass class_names, one for every label"
        )
