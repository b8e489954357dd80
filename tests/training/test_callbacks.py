"""Callbacks see every step and may end a training; what they remember is kept in the checkpoint."""

from functools import partial

import numpy as np
import pytest
import torch

import gilib
from experiments.lindinger2020.stopping import HoldOut
from gilib.training import Checkpoint, EarlyStopping, Plateau, Speed, StoredStates
from tests.support import trainings
from tests.support.trainings import R, model, same, stop_at

fit = partial(trainings.fit, steps=40, rule=gilib.Adam())


@pytest.mark.parametrize("replicas", [(), (R,)])
def test_they_see_every_step(replicas):
    net, seen = model(replicas), []
    history = fit(net, steps=5, callbacks=[lambda *arguments: seen.append(arguments)])
    assert [step for step, _, _ in seen] == [1, 2, 3, 4, 5] and all(given is net for _, _, given in seen)
    assert torch.equal(torch.stack([bound for _, bound, _ in seen]), history.elbo)


@pytest.mark.parametrize("every", [1, 1000])
def test_one_of_them_ends_the_training(every, tmp_path, capsys):
    stop, path = (lambda step, bound, net: step == 7), tmp_path / "run"
    net, shorter, again = model(), model(), model()
    history = fit(net, callbacks=[lambda *_: False, stop], checkpoint=Checkpoint(path, every), progress=True)
    assert "7/40" in capsys.readouterr().err
    assert torch.equal(history.elbo, fit(shorter, steps=7).elbo) and same(net, shorter)
    resumed = fit(again, callbacks=[stop], checkpoint=path)
    assert resumed.resumed_at == 7 and torch.equal(resumed.elbo, history.elbo) and same(net, again)


def bounds(callback, values):
    """After how many bounds a callback ends; None: it does not."""
    callback.begin()
    return next((k for k, v in enumerate(values, 1) if callback(k, torch.as_tensor(v), None)), None)


def test_a_plateau():
    rising = [float(k) for k in range(30)]
    assert bounds(Plateau(every=2, patience=3), rising) is None
    flat = [0.0, 1.0, 2.0, 3.0, *[2.5] * 20]  # windows of two: 0.5, 2.5, 2.5, 2.5, ...
    assert bounds(Plateau(every=2, patience=3), flat) == 10
    late = [0.0, 0.0, 5.0, 5.0, 4.0, 4.0, 6.0, 6.0, 5.0, 5.0, 6.0, 6.0]  # a gain makes it wait anew
    assert bounds(Plateau(every=2, patience=2), late) == 12
    slow = [0.05 * k for k in range(30)]  # windows of two rise by 0.1, and by 0.3 in three
    assert bounds(Plateau(every=2, patience=3, min_gain=0.35), slow) == 8

    best = [0.11 * k for k in range(30)]  # every third window is 0.3 above the best before it
    assert bounds(Plateau(every=1, patience=3, min_gain=0.3), best) is None


def test_replicas_end_when_all_have_come_to_a_plateau():
    first, second = [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0]
    together = torch.tensor([first, second]).T
    assert bounds(Plateau(every=1, patience=2), together) == 6
    broken = together.clone()
    broken[3:, 1] = torch.nan  # a replica that is frozen does not hold up the others
    assert bounds(Plateau(every=1, patience=2), broken) == 5


@pytest.mark.parametrize("replicas", [(), (R,)])
def test_a_training_that_was_interrupted_ends_at_the_same_step(replicas, tmp_path):
    settings, callback = {"steps": 400, "rule": gilib.Adam(0.3)}, Plateau(every=3, patience=2)
    whole, again = (fit(model(replicas), callbacks=[callback], **settings) for _ in range(2))
    assert 8 < len(whole.elbo) < 400 and torch.equal(whole.elbo, again.elbo)  # it begins without memories
    checkpoint = Checkpoint(tmp_path / "run", every=5)
    with pytest.raises(KeyboardInterrupt):
        fit(model(replicas), callbacks=[Plateau(3, 2), stop_at(8)], checkpoint=checkpoint, **settings)
    history = fit(model(replicas), callbacks=[Plateau(3, 2)], checkpoint=checkpoint, **settings)
    assert history.resumed_at == 5 and torch.equal(history.elbo, whole.elbo)


@pytest.mark.parametrize("kind", [Plateau, HoldOut, EarlyStopping, StoredStates])
def test_all_that_begins_anew_is_remembered(kind):
    callback = object.__new__(kind)
    callback.begin()
    assert set(vars(callback)) == set(callback.remembers)


def test_a_training_that_ends_while_it_diverges_says_so():
    with pytest.raises(gilib.training.DivergenceError, match=r"its gradient was not finite at step 1 \(seen"):
        fit(model(posterior=gilib.Factorised()), rule=gilib.Adam(1e4), callbacks=[lambda step, *_: step == 3])


@pytest.mark.parametrize("speed", [Speed(replay=False), Speed(replay=True)])
def test_what_a_callback_freezes_is_not_trained_on(speed):
    with pytest.raises(ValueError, match="a parameter was frozen while it was trained"):
        fit(model(), callbacks=[lambda k, _, net: (net.requires_grad_(k < 9), None)[1]], speed=speed)


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (print, r"callbacks must be a list of functions, got <built-in function print>: write \["),
        (Plateau(), "callbacks must be a list of functions"),
        ([1], "a callback is a function of step, bound and net, got 1"),
        (3, "callbacks must be a list of functions, got 3"),
    ],
)
def test_what_is_refused(callbacks, message):
    with pytest.raises(TypeError, match=message):
        fit(model(), callbacks=callbacks)


@pytest.mark.parametrize("said", [5, 0, 0.5, "stop", torch.tensor([True]), torch.tensor(1.0), []])
def test_other_answers_than_true_and_false_are_refused(said):
    """As of a write to a file, or of a progress bar: they would end the training where nobody meant to."""
    with pytest.raises(TypeError, match="a callback must return True, to end the training, or False or None"):
        fit(model(), callbacks=[lambda *_: said])


@pytest.mark.parametrize("said", [True, np.True_, torch.tensor(True)])
def test_every_kind_of_true_ends_it(said):
    assert len(fit(model(), callbacks=[lambda *_: said]).elbo) == 1
