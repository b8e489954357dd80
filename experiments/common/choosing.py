"""One setting that serves all data sets: chosen on validation data, with what it loses on each of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Setting = TypeVar("Setting", bound=Hashable)
Scores = Mapping[Setting, Mapping[str, Sequence[float | None]]]  # by setting and set, one for every trial


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


def choose(scores: Scores[Setting]) -> Choice[Setting]:
    """The setting that loses least against each set's best, in the mean over sets; of equals the first.

    Args:
        scores: by setting and set, a score of every trial, the larger the better; None: it diverged, which no
            score makes good.

    Raises:
        ValueError: if there is nothing to choose from, or settings differ in their sets.

    >>> choose({"a": {"yacht": [1.0], "wine": [3.0]}, "b": {"yacht": [3.0], "wine": [2.0]}})
    Choice(setting='b', losses={'yacht': 0.0, 'wine': 1.0})
    """
    means = _means(scores)
    return min((_priced(setting, means) for setting in means), key=lambda choice: choice.loss)


def priced(setting: Setting, scores: Scores[Setting]) -> Choice[Setting]:
    """A given setting with what it loses; see `choose`.

    Raises:
        ValueError: if it has no scores, or settings differ in their sets.

    >>> priced("a", {"a": {"wine": [3.0]}, "b": {"wine": [4.0]}}).losses
    {'wine': 1.0}
    """
    means = _means(scores)
    if setting not in means:
        raise ValueError(f"{setting} has no scores: choose one of {list(means)}")
    return _priced(setting, means)


def _means(scores: Scores[Setting]) -> dict[Setting, dict[str, float]]:
    sets = {tuple(own) for own in scores.values()}
    trials = [each for own in scores.values() for each in own.values()]
    if len(sets) != 1 or not trials or not all(trials):
        raise ValueError(
            "every setting needs scores on the same sets, in the same order, at least one trial each; the "
            f"sets are {sorted(sets)}"
        )
    return {setting: {name: _mean(own[name]) for name in own} for setting, own in scores.items()}


def _priced(setting: Setting, means: Mapping[Setting, Mapping[str, float]]) -> Choice[Setting]:
    own = means[setting]
    best = {name: max(other[name] for other in means.values()) for name in own}
    lost = {name: best[name] - own[name] if own[name] > -math.inf else math.inf for name in own}
    return Choice(setting, lost)


def _mean(trials: Sequence[float | None]) -> float:
    known = [-math.inf if score is None else score for score in trials]
    return sum(known) / len(known)
