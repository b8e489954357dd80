"""Schedules of the learning rate: each gives a factor for every step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from gilib.arguments import Checked, Count, Fraction, Positive


class Schedule(Checked, ABC):
    """Base class of schedules: frozen dataclasses that multiply the learning rate by a factor at each step.

    Attributes:
        needs_total: whether the factors depend on the total number of steps. A training with such a schedule
            cannot be resumed with more steps.
    """

    needs_total = True

    @abstractmethod
    def __call__(self, step: int, steps: int) -> float:
        """Return the factor at `step`, counted from 0, of `steps` steps."""


@dataclass(frozen=True)
class LinearDecay(Schedule):
    """The factor is 1 at first, then falls in a straight line towards 0 at the end.

    Args:
        start: fraction of the training after which the factor begins to fall, from 0 to below 1.

    >>> decay = LinearDecay(start=0.5)
    >>> [decay(step, 8) for step in range(8)]
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    """

    start: Fraction = 0.5

    def __call__(self, step: int, steps: int) -> float:
        return min(1.0, (1.0 - step / steps) / (1.0 - self.start))


@dataclass(frozen=True)
class CosineDecay(Schedule):
    """The factor is 1 at first, then follows half a period of a cosine down to `last`.

    Args:
        start: fraction of the training after which the factor begins to fall, from 0 to below 1.
        last: the factor one step after the end, at least 0 and below 1.

    >>> decay = CosineDecay(start=0.5, last=0.1)
    >>> [round(decay(step, 8), 3) for step in (0, 4, 6, 8)]
    [1.0, 1.0, 0.55, 0.1]
    """

    start: Fraction = 0.5
    last: Fraction = 0.1

    def __call__(self, step: int, steps: int) -> float:
        done = max(0.0, (step / steps - self.start) / (1.0 - self.start))
        return self.last + (1.0 - self.last) * 0.5 * (1.0 + math.cos(math.pi * done))


@dataclass(frozen=True)
class PiecewiseConstant(Schedule):
    """The factor is constant between given steps.

    Args:
        boundaries: K steps at which the factor changes, in increasing order.
        factors: the K + 1 factors.

    >>> schedule = PiecewiseConstant(boundaries=(800, 1600), factors=(1.0, 0.4, 0.1))
    >>> schedule(799, 2000), schedule(800, 2000), schedule(1999, 2000)
    (1.0, 0.4, 0.1)
    """

    boundaries: tuple[Count, ...]
    factors: tuple[Positive, ...]

    needs_total = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "boundaries", tuple(self.boundaries))
        object.__setattr__(self, "factors", tuple(self.factors))
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError(f"boundaries must rise, got {self.boundaries}")
        if len(self.factors) != len(self.boundaries) + 1:
            raise ValueError(
                f"{len(self.boundaries)} boundaries need {len(self.boundaries) + 1} factors, "
                f"got {len(self.factors)}"
            )

    def __call__(self, step: int, steps: int) -> float:
        return self.factors[sum(step >= boundary for boundary in self.boundaries)]


@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """The factor is `rate ** (step / every)`.

    Args:
        rate: factor by which the learning rate is multiplied over `every` steps.
        every: number of steps.

    >>> ExponentialDecay(rate=0.5, every=100)(200, 1000)
    0.25
    """

    rate: Positive
    every: Count

    needs_total = False

    def __call__(self, step: int, steps: int) -> float:
        return float(self.rate ** (step / self.every))
