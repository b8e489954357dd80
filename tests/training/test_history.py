"""The verdict on a trace: known lines are found, noise is told from gain, and words follow numbers."""

import dataclasses
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import gilib
from gilib.training import IVON, Bali, History, LinearDecay, NaturalGradient
from gilib.training.history import FAILED, STOOD_STILL
from tests.support import normals
from tests.support.trainings import fit, model


def trace(slope, noise=0.1, steps=1600, seed=0):
    """A line that rises by `slope` in the last quarter, with noise at every step."""
    line = slope * torch.arange(steps, dtype=torch.float64) / (steps / 4)
    return line + noise * normals(steps, seed=seed)


def test_the_trend_is_the_least_squares_line_through_window_means():
    """By numpy; its standard error is that of the textbook, also from numpy's covariance of the fit."""
    elbo = trace(0.3)
    means = elbo[-400:].numpy().reshape(20, 20).mean(1)
    (slope, _), covariance = np.polyfit(np.arange(20), means, 1, cov=True)
    found = History(elbo, 0).trend()
    assert float(found.gain) == pytest.approx(20 * slope, rel=1e-9)
    assert float(found.error) == pytest.approx(20 * covariance[0, 0] ** 0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("elbo", "word", "converged"),
    [
        (trace(0.3), "still rising: the last quarter of 1600 steps gained 0.3", False),
        (trace(-0.3), "falling: the last quarter of 1600 steps lost 0.2", False),
        (trace(0.0), "level: the last quarter of 1600 steps", True),
        (trace(0.005, noise=0.0), "level: .* gained 0.005 ± 0.000 .*; a plateau is no proof", True),
        (trace(0.0, noise=3.0), "too noisy to tell", False),
        (trace(0.0).index_fill(0, torch.tensor([1500]), float("nan")), "broken down", False),
        (trace(0.0, steps=100), "too short to tell: 100 steps, 320 are needed", False),
    ],
)
def test_verdicts(elbo, word, converged):
    history = History(elbo, 0)
    assert history.converged is converged
    assert re.match(word, history.verdict())


def test_of_replicas_the_worst_counts():
    both = History(torch.stack([trace(0.0), trace(0.3)], 1), 0)
    assert not both.converged and both.trend().rising.tolist() == [False, True]
    assert "still rising" in both.verdict() and "largest change of 2 replicas" in both.verdict()
    assert repr(both) == "History(1600 steps, replicas=(2,), still rising)"


def test_the_plot_shows_means_over_steps():
    axes = History(trace(0.3), 0).plot()
    steps, means = axes.lines
    assert len(steps.get_xdata()) == 1600 and len(means.get_xdata()) == 100
    assert means.get_xdata()[0] == 8.5 and means.get_ydata()[3] == pytest.approx(
        float(trace(0.3)[48:64].mean())
    )
    own = plt.figure().subplots()
    assert History(torch.stack([trace(0.0)] * 2, 1), 0).plot(own) is own and len(own.lines) == 4
    plt.close("all")


@pytest.mark.parametrize("rule", [gilib.Adam(0.01), NaturalGradient(0.1), Bali(), IVON()])
def test_every_rule_with_a_schedule_tells_its_factor(rule):
    rules = (dataclasses.replace(rule, schedule=schedule) for schedule in (None, LinearDecay(0.5)))
    assert [own.factor(6, 8) for own in rules] == [1.0, 0.5]


def test_what_it_says_of_a_rise_while_the_rate_fell():
    """It is no reason to train longer, since it never ends."""
    for schedule in (None, LinearDecay(0.5)):
        assert fit(model(), steps=8, rule=gilib.Adam(0.01, schedule=schedule)).slowing is (
            schedule is not None
        )
    plain, fell = History(trace(0.3), 0), History(trace(0.3), 0, slowing=True)
    assert plain.verdict().endswith("nats per point; train longer.")
    assert "nats per point while the learning rate fell, as bounds do then; compare the" in fell.verdict()
    assert not fell.converged and "level" in History(trace(0.0), 0, slowing=True).verdict()


class Impatient(gilib.training.Callback):
    """Ends a training after so many steps."""

    def __init__(self, steps):
        self.steps = steps

    def __call__(self, step, bound, net):
        return step == self.steps


def enough(step, bound, net):
    """The same as a function."""
    return step == 3


@pytest.mark.parametrize(
    ("callbacks", "name"),
    [
        ([Impatient(3)], "Impatient"),
        ([enough], "enough"),
        ([lambda step, bound, net: None, Impatient(3), enough], "Impatient"),
        ([Impatient(5)], ""),  # the last step: nothing was left to do
        ([], ""),
    ],
)
def test_a_callback_that_ends_a_training_is_named(callbacks, name, tmp_path):
    def train(checkpoint=None):
        return fit(model(), steps=5, callbacks=callbacks, checkpoint=checkpoint)

    found = train()
    assert found.stopped_by == name and len(found.elbo) == (3 if name else 5)
    assert repr(found).endswith(f"too short to tell, ended by {name})" if name else "too short to tell)")
    kept = gilib.training.Checkpoint(tmp_path / "training.pt", every=1)
    assert train(kept).stopped_by == train(kept).stopped_by == name  # the second finds it done


def test_who_ended_a_rise_stands_where_advice_would():
    found = History(trace(0.3), 0, stopped_by="EarlyStopping")
    assert found.verdict().startswith("still rising: the last quarter of 1600 steps gained 0.3")
    assert found.verdict().endswith("nats per point; EarlyStopping ended the training.")
    assert repr(found) == "History(1600 steps, still rising, ended by EarlyStopping)" and not found.converged
    assert "lower the learning rate" in History(trace(-0.3), 0, stopped_by="Plateau").verdict()


def test_a_search_that_stood_still_or_failed_says_so():
    found = History(trace(0.0, steps=60), 0, ended=STOOD_STILL)
    assert found.converged and found.verdict().startswith(
        "level: the search stood still after 60 steps; a plat"
    )
    found = History(trace(0.0), 0, ended=FAILED)
    assert not found.converged and repr(found) == "History(1600 steps, broken off)"
    assert found.verdict() == (
        "broken off: a matrix of the search could not be factorised after 1600 steps; "
        "the best point that it had seen is kept."
    )
