"""Two methods on the same repetitions: who is better where, and what so few repetitions can show.

A repetition's split moves all methods together, so differences within repetitions tell more than means with
their errors (Lindinger et al., 2020, Sec. 4.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.runner.records import Record, diverged
from experiments.tables import mean_and_error

TOGETHER = ("dataset", "task", "repetition")  # what two records of a pair agree in, and their scale
MOST = 40  # values whose signs are all tried: as pairs of a million sums
DRAWS, AT_ONCE = 2**20, 2**16  # of random signs, for more values


@dataclass(frozen=True)
class Paired:
    """A quantity of two methods, one value for each repetition.

    Attributes:
        values: in the order of the repetitions.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the repetitions."""
        return mean_and_error(self.values)[0]

    @property
    def error(self) -> float:
        """Standard error of the mean, s/√n. The paper's code divides by n for s²: √((n - 1)/n) of this."""
        return mean_and_error(self.values)[1]

    def p_value(self, null: float = 0.0) -> float:
        """Two-sided, by `sign_flip`, of the hypothesis that values lie symmetrically about `null`."""
        return sign_flip(value - null for value in self.values)


def pairs(ours: Iterable[Record], others: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Records of two methods that belong together, in the order of the repetitions.

    Diverged ones are left out with their partners. Of several records of one repetition the last one counts.
    """
    found = {_key(record): record for record in others if not diverged(record)}
    mine = {_key(record): record for record in ours if not diverged(record)}
    return [(record, found[key]) for key, record in sorted(mine.items()) if key in found]


def frequency(record: Record, other: Record) -> float:
    """The part of the recorded test points at which `record` has the larger log-likelihood; ties are halves.

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
    """By how much the test log-likelihood of `record` is larger, nats per point."""
    return float(record["metrics"]["test_log_likelihood"] - other["metrics"]["test_log_likelihood"])


def frequencies(ours: Sequence[Record], others: Sequence[Record]) -> Paired:
    """`frequency` of every repetition; ½ is no difference."""
    return Paired(tuple(frequency(*pair) for pair in pairs(ours, others)))


def differences(ours: Sequence[Record], others: Sequence[Record]) -> Paired:
    """`difference` of every repetition."""
    return Paired(tuple(difference(*pair) for pair in pairs(ours, others)))


def sign_flip(values: Iterable[float]) -> float:
    """The two-sided p-value of paired differences: what part of all signs gives a sum as far from 0.

    Exact up to 40 values; of more a million random signs are tried, and the observed ones counted with them:
    good to 0.001.

    Args:
        values: one difference for each repetition.

    Raises:
        ValueError: for no values, or some that are not finite.

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
    """The same by random signs, always the same ones."""
    generator, beyond = torch.Generator().manual_seed(0), 1
    for _ in range(DRAWS // AT_ONCE):
        signs = torch.randint(2, (AT_ONCE, len(sizes)), generator=generator, dtype=torch.int8)
        sums = (2.0 * signs.double() - 1.0) @ sizes
        beyond += int((sums.abs() >= least).sum())
    return beyond / (DRAWS + 1)


def _signed_sums(values: Tensor) -> Tensor:
    """Of all signs, `[2^n]`."""
    sums = values.new_zeros(1)
    for value in values:
        sums = torch.cat([sums + value, sums - value])
    return sums


def least_p_value(repetitions: int) -> float:
    """The smallest p-value that so many repetitions can give: all of one sign.

    With 3 repetitions nothing is significant, with 5 nothing at 5%, with 10 much is.

    >>> [least_p_value(repetitions) for repetitions in (3, 5, 10)]
    [0.25, 0.0625, 0.001953125]
    """
    return min(1.0, 2.0 / 2**repetitions)


def _key(record: Record) -> tuple[Any, ...]:
    return (*(record["config"][name] for name in TOGETHER), record["scale"])
