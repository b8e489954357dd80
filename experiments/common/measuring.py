"""Numbers as records keep them."""

from __future__ import annotations

from torch import Tensor


def significant(value: float) -> float:
    """A number with six significant digits.

    >>> significant(1 / 3)
    0.333333
    """
    return float(f"{value:.6g}")


def rounded(values: Tensor, places: int) -> list[float]:
    """All entries of a tensor, with so many digits after the point.

    >>> import torch
    >>> rounded(torch.tensor([[1 / 3], [2.0]]), 2)
    [0.33, 2.0]
    """
    return [round(value, places) for value in values.flatten().tolist()]
