"""Round numbers for records."""

from __future__ import annotations

from torch import Tensor


def significant(value: float, digits: int = 6) -> float:
    """Round a number to some significant digits.

    >>> significant(1 / 3), significant(1 / 3, digits=4)
    (0.333333, 0.3333)
    """
    return float(f"{value:.{digits}g}")


def rounded(values: Tensor, places: int) -> list[float]:
    """Return all entries of a tensor, rounded to `places` decimals.

    >>> import torch
    >>> rounded(torch.tensor([[1 / 3], [2.0]]), 2)
    [0.33, 2.0]
    """
    return [round(value, places) for value in values.flatten().tolist()]
