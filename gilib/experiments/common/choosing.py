"""One setting that serves all data sets: chosen on validation data, with what it loses on each of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Setting = TypeVar("Setting", bound=Hashable)


@dataclass(frozen=True)
class Choice(Generic[Setting]):
    """A setting, and its price.

    Attributes:
        setting: the one that serves all sets.
        losses: by set, the score of that set's best setting minus that of this one, at least 0; infinite
            where this one diverged.
    """

    setting: Setting
    losses: Mapping[str, float]

    @property
    def loss(self) -> float:
        """The mean over the sets."""
        return sum(self.losses.values()) / len(self.losses)


def choose(scores: Mapping[Setting, Mapping[str, Sequence[float | None]]]) -> Choice[Setting]:
    """The setting whose scores lose least against each set's best, in the mean over sets.

    Args:
        scores: by setting and set, a score of every trial, the larger the better; None: it diverged, which no
            score makes good.

    Raises:
        ValueError: if there is nothing to choose from, or settings differ in their sets.

    >>> choose({"a": {"yacht": [1.0], "wine": [3.0]}, "b": {"yacht": [3.0], "wine": [2.0]}})
    Choice(setting='b', losses={'yacht': 0.0, 'wine': 1.0})
    """
    sets = {tuple(own) for own in scores.values()}
    if len(sets) != 1 or not all(trials for own in scores.values() for trials in own.values()):
        raise ValueError(
            "every setting needs scores on the same sets, in the same order, at least one trial each; the "
            f"sets are {sorted(sets)}"
        )
    means = {setting: {name: _mean(own[name]) for name in own} for setting, own in scores.items()}
    best = {name: max(own[name] for own in means.values()) for name in next(iter(sets))}
    choices = [Choice(setting, {n: _gap(best[n], own[n]) for n in best}) for setting, own in means.items()]
    return min(choices, key=lambda choice: choice.loss)


def _mean(trials: Sequence[float | None]) -> float:
    known = [-math.inf if score is None else score for score in trials]
    return sum(known) / len(known)


def _gap(best: float, own: float) -> float:
    return best - own if own > -math.inf else math.inf
