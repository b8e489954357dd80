"""The record of a training, and the judgement from its last quarter whether it has converged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gilib.optional import require_package

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PART = 4  # the verdict is about the last quarter of the steps
WINDOWS = 20  # windows of that quarter; their means are nearly independent
MIN_STEPS = 4 * WINDOWS * PART  # a mean needs a window of at least four steps
TOLERANCE = 0.02  # nats per data point: a density that is 2 % larger; two random starts differ by as much
STOOD_STILL = "the search stood still"
FAILED = "a matrix of the search could not be factorised"
PLATEAU = "a plateau is no proof: compare the bound with that of other settings"


class Trend(NamedTuple):
    """A straight line, fitted to the last quarter of the bounds of a training.

    Attributes:
        gain: increase of the line over that quarter, `[R]`, nats per data point.
        error: standard error of the gain, `[R]`, from the scatter of window means around the line.
    """

    gain: Tensor
    error: Tensor

    @property
    def rising(self) -> Tensor:
        """Whether the gain exceeds both the tolerance and two standard errors; `[R]`."""
        return (self.gain > TOLERANCE) & (self.gain > 2.0 * self.error)

    @property
    def falling(self) -> Tensor:
        """Whether the loss exceeds both the tolerance and two standard errors; `[R]`."""
        return (self.gain < -TOLERANCE) & (self.gain < -2.0 * self.error)

    @property
    def unclear(self) -> Tensor:
        """Whether noise could hide a gain of twice the tolerance; `[R]`."""
        return ~self.rising & ~self.falling & (self.error > TOLERANCE)

    @property
    def broken(self) -> Tensor:
        """Whether some bound of the last quarter is not a finite number; `[R]`."""
        return ~(self.gain + self.error).isfinite()


@dataclass(frozen=True, repr=False)
class History:
    """The record of a training, which `gilib.fit` returns.

    Attributes:
        elbo: the estimate of the ELBO per data point before every step, `[steps]` or `[steps, R]`, nats, with
            that step's minibatch and `kl_weight`. It is shorter if a callback stopped the training.
        resumed_at: the step at which this run continued from a checkpoint; 0 if it started afresh.
        diverged_at: the step at which each replica was frozen, `[R]`; -1 for replicas that were not frozen;
            None without `on_divergence="freeze"`.
        ended: the reason why the rule itself ended the training, as `Collapsed` does; empty otherwise.
        slowing: whether the learning rate fell in the last quarter, in which the bound then rises, however
            long the training is.
        stopped_by: the callback that stopped the training before its steps were over; empty if none did.

    >>> level = History(torch.zeros(1000), 0)
    >>> level.converged, level
    (True, History(1000 steps, level))
    """

    elbo: Tensor
    resumed_at: int
    diverged_at: Tensor | None = None
    ended: str = ""
    slowing: bool = False
    stopped_by: str = ""

    def trend(self) -> Trend | None:
        """Fit a line by least squares to the mean bounds of 20 windows of the last quarter.

        The means are nearly independent, so their scatter gives the error of the slope. Returns None if there
        are too few steps.
        """
        steps = len(self.elbo)
        if steps < MIN_STEPS:
            return None
        size = steps // (PART * WINDOWS)
        tail = self.elbo[-size * WINDOWS :].detach().double()
        means = tail.unflatten(0, (WINDOWS, size)).mean(1)  # [windows, R]
        place = torch.arange(WINDOWS, dtype=torch.float64) - 0.5 * (WINDOWS - 1)
        place = place.reshape(-1, *(1,) * (means.dim() - 1))
        spread = place.square().sum()
        slope = (place * means).sum(0) / spread
        residual = means - means.mean(0) - slope * place
        error = (residual.square().sum(0) / (WINDOWS - 2) / spread).sqrt()
        return Trend(WINDOWS * slope, WINDOWS * error)

    @property
    def converged(self) -> bool:
        """Whether the bound of every replica was level in the last quarter.

        A level bound does not prove convergence: compare it with the bounds of other settings.
        """
        if self.ended:
            return self.ended == STOOD_STILL
        trend = self.trend()
        if trend is None:
            return False
        return not bool((trend.rising | trend.falling | trend.unclear | trend.broken).any())

    def verdict(self) -> str:
        """Return a sentence that says whether the training has converged, with the numbers behind it.

        >>> print(History(torch.linspace(-1, 1, 1600), 0).verdict())
        still rising: the last quarter of 1600 steps gained 0.500 ± 0.000 nats per point; train longer.
        """
        if self.ended:
            return f"{self._word(None)}: {self.ended} after {len(self.elbo)} steps; {ADVICE[self.ended]}."
        trend = self.trend()
        if trend is None:
            return f"too short to tell: {len(self.elbo)} steps, {MIN_STEPS} are needed."
        worst = int(trend.gain.abs().argmax()) if not bool(trend.broken.any()) else 0
        gain, error = (float(value.reshape(-1)[worst]) for value in trend)
        change = f"{'gained' if gain >= 0 else 'lost'} {abs(gain):.3f} ± {error:.3f} nats per point"
        numbers = f"the last quarter of {len(self.elbo)} steps {change}"
        if trend.gain.numel() > 1:
            numbers += f" (the largest change of {trend.gain.numel()} replicas)"
        word = self._word(trend)
        advice = f"; {ADVICE[word]}"
        if word == "still rising" and (self.stopped_by or self.slowing):
            advice = f"; {self.stopped_by} ended the training" if self.stopped_by else SLOWED
        return f"{word}: {numbers}{advice}."

    def _word(self, trend: Trend | None) -> str:
        """Return the verdict in a few words: the worst that holds for any replica."""
        if self.ended:
            return "level" if self.ended == STOOD_STILL else "broken off"
        if trend is None:
            return "too short to tell"
        words = {"broken down": trend.broken, "falling": trend.falling, "still rising": trend.rising}
        words["too noisy to tell"] = trend.unclear
        return next((word for word, true in words.items() if bool(true.any())), "level")

    def plot(self, axes: Axes | None = None) -> Axes:
        """Plot the bound against the steps: every step in grey, and means over hundredths of the training.

        Args:
            axes: where to draw; None: a new figure.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        if axes is None:
            axes = require_package("matplotlib.pyplot", "matplotlib", "plot a history").subplots()[1]
        assert axes is not None
        traces = self.elbo.detach().double().reshape(len(self.elbo), -1)  # [steps, R]
        size = max(1, math.ceil(len(traces) / 100))
        whole = len(traces) // size * size
        means = traces[:whole].unflatten(0, (-1, size)).mean(1)
        axes.plot(1 + torch.arange(len(traces)), traces, color="#8C8C8C", linewidth=0.5)
        axes.plot(0.5 + size * (torch.arange(len(means)) + 0.5), means, color="#0072B2")
        shown = traces[len(traces) // 10 :]
        shown = shown[shown.isfinite()]
        if shown.numel() and shown.max() > shown.min():
            low, high = (float(value) for value in shown.quantile(torch.tensor([0.02, 1.0]).to(shown)))
            axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        axes.set(xlabel="step", ylabel="ELBO per data point, nats")
        return axes

    def __repr__(self) -> str:
        replicas = f", replicas={tuple(self.elbo.shape[1:])}" if self.elbo.dim() > 1 else ""
        stopped = f", ended by {self.stopped_by}" if self.stopped_by else ""
        return f"History({len(self.elbo)} steps{replicas}, {self._word(self.trend())}{stopped})"


ADVICE = {
    "broken down": "lower the learning rate",
    "falling": "lower the learning rate, or let it fall (LinearDecay)",
    "still rising": "train longer",
    "too noisy to tell": "take more draws a step, larger batches, or a learning rate that falls; "
    "a larger one if the bound has hardly moved",
    "level": PLATEAU,
    STOOD_STILL: PLATEAU,
    FAILED: "the best point that it had seen is kept",
}
SLOWED = " while the learning rate fell, as bounds do then; compare the bound with that after twice the steps"
