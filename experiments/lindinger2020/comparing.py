"""Compare two methods on the same repetitions, with tests for few repetitions.

A repetition's split affects all methods alike, so differences within repetitions are more informative than
means with their errors (Lindinger et al., 2020, Sec. 4.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.runner.records import Record, diverged
from experiments.tables import mean_and_error

TOGETHER = ("dataset", "task", "repetition")  # settings that two records of a pair share, like their scale
MOST = 40  # largest number of values for which all signs are tried, as pairs of a million sums
DRAWS, AT_ONCE = 2**20, 2**16  # numbers of random signs, if there are more values


@dataclass(frozen=True)
class Paired:
    """A comparison of two methods, with one value for each repetition.

    Attributes:
        values: values in the order of the repetitions.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the repetitions."""
        return mean_and_error(self.values)[0]

    @property
    def error(self) -> float:
        """Standard error of the mean, s/√n; the paper's code has n instead of n - 1 in s²."""
        return mean_and_error(self.values)[1]

    def p_value(self, null: float = 0.0) -> float:
        """Return the two-sided p-value, by `sign_flip`, that values are symmetric about `null`."""
        return sign_flip(value - null for value in self.values)


def pairs(ours: Iterable[Record], others: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Pair the records of two methods, in the order of the repetitions.

    Diverged records are left out with their partners. If a repetition has several records, the last one
    counts.
    """
    found = {_key(record): record for record in others if not diverged(record)}
    mine = {_key(record): record for record in ours if not diverged(record)}
    return [(record, found[key]) for key, record in sorted(mine.items()) if key in found]


def frequency(record: Record, other: Record) -> float:
    """Return the fraction of test points at which `record` has the larger log-likelihood; ties count half.

    Raises:
        ValueError: if the records are not of the same test points.
    """
    mine, theirs = (each["test_points"]["log_likelihood"] for each in (record, other))
    if _key(record) != _key(other) or len(mine) != len(theirs):
        raise ValueError(
            f"records {record['id']} and {other['id']} are not of the same test points: pair records of one "
            f"{', '.join(TOGETHER)} and scale"
        )
    return sum((a > b) + 0.5 * (a == b) for a, b in zip(mine, theirs, strict=True)) / len(mine)


def difference(record: Record, other: Record) -> float:
    """Return how much larger the test log-likelihood of `record` is, nats per point."""
    return float(record["metrics"]["test_log_likelihood"] - other["metrics"]["test_log_likelihood"])


def frequencies(ours: Sequence[Record], others: Sequence[Record]) -> Paired:
    """Return `frequency` for every repetition; ½ means no difference."""
    return Paired(tuple(frequency(*pair) for pair in pairs(ours, others)))


def differences(ours: Sequence[Record], others: Sequence[Record]) -> Paired:
    """Return `difference` for every repetition."""
    return Paired(tuple(difference(*pair) for pair in pairs(ours, others)))


def sign_flip(values: Iterable[float]) -> float:
    """Return the two-sided p-value of paired differences: the fraction of signs with a sum as far from 0.

    It is exact up to 40 values. For more, a million random signs and the observed ones give it to 0.001.

    Args:
        values: one difference for each repetition.

    Raises:
        ValueError: if there are no values, or some are not finite.

    >>> sign_flip([1.0, 2.0, 3.0]), sign_flip([1.0, -1.0])
    (0.25, 1.0)
    """
    sizes = torch.tensor([float(value) for value in values], dtype=torch.float64)
    if not len(sizes):
        raise ValueError("sign_flip compares differences, and there is none")
    if not bool(sizes.isfinite().all()):
        raise ValueError("sign_flip compares finite differences, and there is one that is not")
    near = 1e-12 * sizes.abs().sum()  # rounding must not tell equal sums apart
    least = sizes.sum().abs() - near
    if least <= 0.0:
        return 1.0
    if len(sizes) > MOST:
        return _by_random_signs(sizes, float(least))
    one, other = (_signed_sums(half) for half in sizes.tensor_split(2))
    beyond = len(other) - torch.searchsorted(other.sort().values, least - one)  # for each sum of one half
    return 2.0 * float(beyond.sum()) / 2 ** len(sizes)


def _by_random_signs(sizes: Tensor, least: float) -> float:
    """Estimate the p-value with random signs from a fixed seed."""
    generator, beyond = torch.Generator().manual_seed(0), 1
    for _ in range(DRAWS // AT_ONCE):
        signs = torch.randint(2, (AT_ONCE, len(sizes)), generator=generator, dtype=torch.int8)
        sums = (2.0 * signs.double() - 1.0) @ sizes
        beyond += int((sums.abs() >= least).sum())
    return beyond / (DRAWS + 1)


def _signed_sums(values: Tensor) -> Tensor:
    """Return the sums for all signs, `[2^n]`."""
    sums = values.new_zeros(1)
    for value in values:
        sums = torch.cat([sums + value, sums - value])
    return sums


def least_p_value(repetitions: int) -> float:
    """Return the smallest p-value that a number of repetitions can give, if all have the same sign.

    With 3 repetitions nothing can be significant, and with 5 nothing at the 5% level.

    >>> [least_p_value(repetitions) for repetitions in (3, 5, 10)]
    [0.25, 0.0625, 0.001953125]
    """
    return min(1.0, 2.0 / 2**repetitions)


def _key(record: Record) -> tuple[Any, ...]:
    return (*(record["config"][name] for name in TOGETHER), record["scale"])
