"""A regression data set in original units, and its published splits into training and test data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gilib.data.normalisation import Normalisation

__all__ = ["Dataset", "Split", "sha256_of", "split_indices"]


def sha256_of(x: Tensor, y: Tensor) -> str:
    r"""Return the SHA-256 of decoded arrays: the same on every machine, whatever file format they came from.

    Hashed are, in this order: the ASCII header ``"x <f8 N D\ny <f8 N O\n"`` with the sizes in decimal, then
    the values of ``x``, then those of ``y``, each as contiguous row-major little-endian float64.

    Args:
        x: inputs, ``[N, D]``.
        y: targets, ``[N, O]``.

    Raises:
        ValueError: an array is not two-dimensional, or the row counts differ.

    Example:
        >>> import torch
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


def split_indices(num_points: int, k: int) -> tuple[Tensor, Tensor]:
    """Regenerate the rows of published split ``k`` of a data set of ``num_points`` rows.

    The publishers seed NumPy's legacy generator with 1 once per data set, draw one permutation per split, and
    take its first ``round(0.9 N)`` rows for training (Hernández-Lobato & Adams, 2015). Split ``k`` therefore
    needs the ``k`` permutations before it. NumPy's global generator is neither read nor changed.

    Args:
        num_points: number of rows N of the data set.
        k: number of the split, counted from 0.

    Returns:
        Row numbers for training ``[round(0.9 N)]`` and for testing ``[N - round(0.9 N)]``, int64, in
        published order.

    Example:
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
    """Training and test data in normalised units, with what leads back to original units.

    Attributes:
        name: name of the data set.
        k: number of the split, counted from 0.
        train_x: ``[N, D]``, normalised.
        train_y: ``[N, O]``, normalised.
        test_x: ``[N*, D]``, normalised with the training data's statistics.
        test_y: ``[N*, O]``, normalised with the training data's statistics.
        test_x_raw: ``[N*, D]``, float64, original units: what `gilib.predict` takes with a normalisation.
        test_y_raw: ``[N*, O]``, float64, original units, for metrics.
        normalisation: fitted to the training data of this split; float64.
        train_index: rows of the data set that are in ``train_x``, ``[N]``.
        test_index: rows of the data set that are in ``test_x``, ``[N*]``.
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
class Dataset:
    """A regression data set in original units.

    Attributes:
        name: short name.
        x: inputs, ``[N, D]``, float64.
        y: targets, ``[N, O]``, float64.
        num_splits: number of published splits.
        description: what the inputs and the target are.
        source: where the data come from.
        licence: under which terms.
        note: what a user should know before using them.

    Raises:
        TypeError: ``x`` or ``y`` is not float64.
        ValueError: shapes do not fit.

    Example:
        >>> import gilib.data
        >>> gilib.data.load_uci("yacht").split(0).train_x.shape
        torch.Size([277, 6])
    """

    name: str
    x: Tensor  # [N, D]
    y: Tensor  # [N, O]
    num_splits: int
    description: str = ""
    source: str = ""
    licence: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit each other."""
        _check_pair(self.x, self.y)
        for name, value in (("x", self.x), ("y", self.y)):
            if value.dtype != torch.float64:
                raise TypeError(
                    f"{name} of a data set must be float64, got {value.dtype}: pass {name}.double(); "
                    "split() converts to the dtype of training"
                )

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the decoded arrays as :func:`sha256_of` defines it."""
        return sha256_of(self.x, self.y)

    def split(
        self,
        k: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Split:
        """Return published split ``k``, normalised by the statistics of its training data only.

        Args:
            k: number of the split, from 0 to ``num_splits - 1``.
            dtype: of the normalised data; statistics are taken in float64 first.
            device: of the data; the CPU if not given.

        Raises:
            TypeError: ``k`` is not an integer, or ``dtype`` is not a floating-point type.
            ValueError: there is no split ``k``.

        Example:
            >>> import gilib.data
            >>> split = gilib.data.load_uci("yacht").split(3)
            >>> bool(split.train_y.mean().abs() < 1e-6)
            True
        """
        if isinstance(k, bool) or not isinstance(k, int):
            raise TypeError(f"the split number must be an integer, got {k!r} ({type(k).__name__})")
        if not 0 <= k < self.num_splits:
            raise ValueError(
                f"{self.name} has splits 0 to {self.num_splits - 1}, got {k}: "
                f"choose one of range({self.num_splits})"
            )
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point type such as torch.float32, got {dtype}")
        train, test = split_indices(len(self.x), k)
        normalisation = Normalisation.fit(self.x[train], self.y[train])
        x = normalisation.x(self.x).to(device=device, dtype=dtype)  # [N, D]
        y = normalisation.y(self.y).to(device=device, dtype=dtype)  # [N, O]
        return Split(
            name=self.name,
            k=k,
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
            f"x must be [N, D] and y [N, O] with the same N, got {tuple(x.shape)} and {tuple(y.shape)}: "
            "reshape a vector with [:, None]"
        )
