"""Rank methods over data sets, and test which differences are significant (Demšar, 2006)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gilib.optional import require


@dataclass(frozen=True)
class Ranking:
    """Ranks of k methods in each of N blocks (data sets, or splits of them), 1 for the best.

    Attributes:
        ranks: for every method its rank in each block; equal scores share their mean rank.
    """

    ranks: Mapping[str, tuple[float, ...]]

    @property
    def blocks(self) -> int:
        """The number of blocks, N."""
        return len(next(iter(self.ranks.values())))

    @property
    def means(self) -> dict[str, float]:
        """The mean rank R_j of every method, the best first."""
        found = {name: sum(own) / len(own) for name, own in self.ranks.items()}
        return dict(sorted(found.items(), key=lambda item: item[1]))

    @property
    def statistic(self) -> float:
        """Friedman's statistic, which measures how far mean ranks are from (k + 1)/2.

            χ² = (k - 1) N² Σ_j (R_j - (k+1)/2)² / Σ_ij (r_ij - (k+1)/2)²

        Without ties this is 12 N / (k(k + 1)) · (Σ_j R_j² - k(k+1)²/4). It is 0 if all scores are equal in
        every block.
        """
        k, n = len(self.ranks), self.blocks
        centre = (k + 1) / 2
        between = sum((mean - centre) ** 2 for mean in self.means.values())
        total = sum((rank - centre) ** 2 for own in self.ranks.values() for rank in own)
        return (k - 1) * n**2 * between / total if total else 0.0

    @property
    def p_value(self) -> float:
        """The p-value of equal methods.

        It follows from F = (N - 1) χ² / (N(k - 1) - χ²) with k - 1 and (k - 1)(N - 1) degrees of freedom,
        Iman & Davenport's (1980) form of Friedman's test, which is accurate for smaller N than χ² is.

        Raises:
            ValueError: if there is only one block.
        """
        k, n, chi = len(self.ranks), self.blocks, self.statistic
        if n < 2:
            raise ValueError(
                "a test of ranks needs at least two blocks, got 1: rank the methods on more data sets"
            )
        rest = n * (k - 1) - chi
        value = (n - 1) * chi / rest if rest > 0 else math.inf
        return float(require("scipy.stats", "book").f.sf(value, k - 1, (k - 1) * (n - 1)))


def rank(blocks: Sequence[Mapping[str, float | None]]) -> Ranking:
    """Rank methods in every block by their scores; larger scores are better.

    Args:
        blocks: for every block, the score of each method. None means that it broke down, which ranks last.

    Raises:
        ValueError: if there is no block, or there are fewer than two methods, or blocks have different
            methods, or a score is not a number.

    >>> rank([{"a": 3.0, "b": 1.0, "c": 1.0}, {"a": 2.0, "b": 5.0, "c": None}]).means
    {'a': 1.5, 'b': 1.75, 'c': 2.75}
    """
    names = list(blocks[0]) if blocks else []
    if len(names) < 2 or any(set(block) != set(names) for block in blocks):
        raise ValueError(
            "ranks need at least one block, and scores of the same two methods or more in every block, got "
            f"{[sorted(block) for block in blocks]}: leave out methods that are missing somewhere"
        )
    if unknown := sorted(
        {n for block in blocks for n, s in block.items() if s is not None and math.isnan(s)}
    ):
        raise ValueError(f"scores must be numbers, or None after a divergence, got nan of {unknown}")
    scores = [{n: -math.inf if s is None else s for n, s in block.items()} for block in blocks]
    return Ranking({name: tuple(_rank(block, name) for block in scores) for name in names})


def _rank(block: Mapping[str, float], name: str) -> float:
    """Return 1 + the number of better methods + half the number of equal ones."""
    better = sum(score > block[name] for score in block.values())
    equal = sum(score == block[name] for score in block.values()) - 1
    return 1 + better + equal / 2


def critical_difference(methods: int, blocks: int, level: float = 0.05) -> float:
    """Return the smallest significant difference of mean ranks (Nemenyi).

        CD = q √(k(k + 1) / (6N)),   q = Q / √2,

    with Q the 1 - level quantile of the range of k independent standard normals.

    Args:
        methods: k, two or more.
        blocks: N, one or more.
        level: probability that any two of k equal methods differ significantly.

    Raises:
        ValueError: if an argument is outside its range.

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    if methods < 2 or blocks < 1 or not 0 < level < 1:
        raise ValueError(
            "a critical difference needs two methods, one block and a level between 0 and 1, got "
            f"{methods}, {blocks} and {level}"
        )
    return normal_range(methods, level) * math.sqrt(methods * (methods + 1) / (6 * blocks))


def normal_range(methods: int, level: float = 0.05) -> float:
    """Return q of `critical_difference`: the 1 - level quantile of the range of standard normals, over √2.

    >>> round(normal_range(2), 3)
    1.96
    """
    distribution = require("scipy.stats", "book").studentized_range
    return float(distribution.ppf(1 - level, methods, math.inf)) / math.sqrt(2)


def not_told_apart(means: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """Return the maximal groups of consecutive methods whose mean ranks differ by less than `difference`.

    Args:
        means: mean ranks.
        difference: the critical difference.

    Returns:
        Groups of two or more methods, best first, none inside another; the usual figure has a bar for each.

    >>> not_told_apart({"a": 1.0, "b": 2.0, "c": 2.5, "d": 4.0}, 1.6)
    [('a', 'b', 'c'), ('c', 'd')]
    """
    names = sorted(means, key=lambda name: means[name])
    found: list[tuple[str, ...]] = []
    reached = 0
    for begin, first in enumerate(names):
        end = max(
            k for k, name in enumerate(names, 1) if means[name] - means[first] < difference or k <= begin + 1
        )
        if end > max(reached, begin + 1):
            found.append(tuple(names[begin:end]))
            reached = end
    return found
