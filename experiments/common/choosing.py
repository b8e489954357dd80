"""Choose one setting for all data sets on validation data, and measure what it loses on each of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Setting = TypeVar("Setting", bound=Hashable)
Scores = Mapping[Setting, Mapping[str, Sequence[float | None]]]  # by setting and data set, one per trial


@dataclass(frozen=True)
class Choice(Generic[Setting]):
    """A setting for all data sets, with its losses.

    Attributes:
        setting: the setting.
        losses: for each set, the score of its best setting minus the score of this one, at least 0; infinite
            if this one diverged.
    """

    setting: Setting
    losses: Mapping[str, float]

    @property
    def loss(self) -> float:
        """Mean loss over the sets."""
        return sum(self.losses.values()) / len(self.losses)


def choose(scores: Scores[Setting]) -> Choice[Setting]:
    """Return the setting with the least mean loss against each set's best; the first of equals.

    Args:
        scores: for every setting and set, the score of every trial, larger is better. None means that it
            diverged: the loss is then infinite.

    Raises:
        ValueError: if there are no scores, or settings have different sets.

    >>> choose({"a": {"yacht": [1.0], "wine": [3.0]}, "b": {"yacht": [3.0], "wine": [2.0]}})
    Choice(setting='b', losses={'yacht': 0.0, 'wine': 1.0})
    """
    means = _means(scores)
    return min((_priced(setting, means) for setting in means), key=lambda choice: choice.loss)


def priced(setting: Setting, scores: Scores[Setting]) -> Choice[Setting]:
    """Return a given setting with its losses; see `choose`.

    Raises:
        ValueError: if it has no scores, or settings have different sets.

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
