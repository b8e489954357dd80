"""What a checkpoint continues, keeps and refuses."""

import os
from functools import partial

import numpy as np
import pytest
import torch

import gilib
from gilib.training import Checkpoint, ExponentialDecay, LinearDecay, Paused, Plateau, Speed, StoredStates
from tests.support import D
from tests.support.rules import MovingAverages, averaged
from tests.support.trainings import LOST, X, Y, fit, model, same, shake, stop_at

ADAM = gilib.Adam(0.03)


def pair(**settings):
    return model(**settings), gilib.Gaussian(0.1, learn=True)


def train(path=None, net=model, noise=lambda: gilib.Gaussian(0.1, learn=True), **settings):
    return fit(net(), noise(), **({"rule": ADAM, "seed": 3, "checkpoint": path} | settings))


def test_more_steps_continue_a_finished_training(tmp_path):
    """Which is not repeated, whatever the network was."""
    straight, longer, again, path = pair(), pair(), pair(seed=9), tmp_path / "checkpoint.pt"
    whole = fit(*straight, steps=10, rule=ADAM)
    fit(*pair(), checkpoint=path, steps=5, rule=ADAM)
    history = fit(*longer, checkpoint=path, steps=10, rule=ADAM)
    assert history.resumed_at == 5 and torch.equal(history.elbo, whole.elbo)
    content = path.read_bytes()
    history = fit(*again, checkpoint=path, steps=10, rule=ADAM)
    assert history.resumed_at == 10 and torch.equal(history.elbo, whole.elbo)
    assert path.read_bytes() == content and same(longer, straight) and same(again, straight)


def shift(by, x, generator):
    return x + torch.as_tensor(by)


class Shift:
    """An augmentation that is an object."""

    def __call__(self, x, generator):
        return x + 1.0


def noise(variance, learn=False):
    return lambda: gilib.Gaussian(variance, learn)


def single():
    return model().float()


SINGLE = {"net": single, "x": X[0].float(), "y": Y[0].float()}
AVERAGES = {"net": averaged, "noise": noise(0.3), "rule": MovingAverages(jitter=0.1)}
SCHEDULED, SHAKEN = {"rule": gilib.Adam(schedule=LinearDecay(0.5))}, {"augment": partial(shake, size=0.2)}
HALVES = [[0.5, 1.0], [0.5, 2.0]]
CALLED = {"callbacks": [Plateau(), lambda *_: None]}
OTHERS = {  # what is trained, what is different then, and what an error says of it
    "posterior": ({}, {"net": partial(model, posterior=gilib.LocalInducing(num_inducing=5))}, "network"),
    "learned noise": ({}, {"noise": noise(0.1)}, "likelihood"),
    "fixed noise": ({"noise": noise(0.1)}, {"noise": noise(0.2)}, "likelihood"),
    "batch size": ({}, {"batch_size": 6}, "batch_size: null there, 6 here"),
    "samples": ({}, {"num_samples": 3}, "num_samples: 2 there, 3 here"),
    "learning rate": ({}, {"rule": gilib.Adam(0.02)}, "rule"),
    "seed": ({}, {"seed": 4}, "seed: 3 there, 4 here"),
    "data": ({}, {"x": X[0] + 1}, "inputs"),
    "targets": ({}, {"y": Y[0] + 1}, "targets"),
    "a reader's rule": (AVERAGES, {"rule": MovingAverages(0.8)}, "rule"),
    "no schedule": (SCHEDULED, {"rule": gilib.Adam()}, "rule"),
    "settings of a schedule": (SCHEDULED, {"rule": gilib.Adam(schedule=LinearDecay(0.4))}, "rule"),
    "another schedule": (SCHEDULED, {"rule": gilib.Adam(schedule=ExponentialDecay(0.5, 4))}, "rule"),
    "arithmetic": (SINGLE | {"speed": Speed("bfloat16")}, {"speed": Speed()}, "arithmetic: .*"),
    "no augmentation": (SHAKEN, {"augment": None}, "augment"),
    "settings of an augmentation": (SHAKEN, {"augment": partial(shake, size=0.3)}, "augment"),
    **{
        f"{kind.__name__} of an augmentation": tuple(
            [{"augment": partial(shift, kind(values))} for values in HALVES] + ["augment"]
        )
        for kind in (torch.tensor, np.array)
    },
    "another augmentation": ({"augment": Shift()}, {"augment": shake}, "augment: .*"),
    **{
        f"{len(others)} other callbacks": (CALLED, {"callbacks": others}, None)
        for others in ([], [StoredStates(0)], [Plateau(), Plateau()])
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_something_else_is_refused(name, tmp_path):
    path, (given, other, different) = tmp_path / "checkpoint.pt", OTHERS[name]
    train(path, **given)
    content = path.read_bytes()
    wanted = rf"belongs to another model, data set or setting \({different}\): choose another file"
    wanted = wanted if different else r"callbacks \['gilib.training.callbacks.Plateau'"
    with pytest.raises(LOST, match=wanted):
        train(path, **(given | other))
    assert path.read_bytes() == content
    reordered = given | {"callbacks": given.get("callbacks", [])[::-1]}  # functions have no state
    assert train(path, **reordered).resumed_at == 4


KINDS = {
    "lambda": lambda value: lambda step: value,
    "tensor": lambda value: partial(min, torch.tensor(value, dtype=D)),
    "late": lambda value: lambda step: value if step > 2 else 0.0,
}


@pytest.mark.parametrize("kind", KINDS)
def test_functions_are_told_apart_by_what_they_give(kind, tmp_path):
    """At all steps of the training, not only at those that were done."""
    path, make = tmp_path / "run", KINDS[kind]
    with pytest.raises(Paused):
        train(Checkpoint(path, deadline=0.0), steps=5, kl_weight=make(0.5))
    with pytest.raises(LOST, match="another setting: kl_weight is"):
        train(path, steps=5, kl_weight=make(0.75))
    same = lambda step: make(0.5)(step)  # noqa: E731 (a function of another name)
    assert train(path, steps=7, kl_weight=same).resumed_at == 1


def truncated(path):
    train(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


REFUSED = {
    "foreign": (lambda path: torch.save({"format": "something else"}, path), "holds 'something else'"),
    "model": (lambda path: gilib.save(path, *pair()), "holds 'gilib model 1', wanted 'gilib checkpoint 5'"),
    "truncated": (truncated, "damaged or not a file of gilib.*restore or delete it"),
    "beyond": (lambda path: train(path, steps=12), "at step 12, beyond steps=8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_are_refused_before_any_work(name, tmp_path):
    path, (make, message), parts, untouched = tmp_path / "checkpoint.pt", REFUSED[name], pair(), pair()
    make(path)
    with pytest.raises(LOST, match=message):
        fit(*parts, rule=ADAM, seed=3, checkpoint=path, steps=8)
    assert same(parts, untouched)


@pytest.mark.parametrize("where", ["", "folder", "file/below", "pipe"])
def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_step(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
    steps = []
    with pytest.raises(OSError, match="give the path of a file"):
        train(where, callbacks=[lambda *step: steps.append(step)])
    assert not steps and sorted(os.listdir()) == ["file", "folder", "pipe"]


@pytest.mark.parametrize("checkpoint", [3, Checkpoint, b"run"])
def test_a_checkpoint_that_is_none(checkpoint):
    with pytest.raises(TypeError, match="checkpoint must be"):
        train(checkpoint)


def test_divergence_keeps_the_last_checkpoint(tmp_path):
    net = model(posterior=gilib.Factorised())

    def explode(step, bound, net):
        if step == 6:
            next(net.parameters()).data.fill_(torch.nan)

    with pytest.raises(gilib.training.DivergenceError, match="step 6"):
        fit(net, steps=12, checkpoint=Checkpoint(tmp_path / "run", 4), callbacks=[explode])
    assert fit(net, steps=12, checkpoint=tmp_path / "run").resumed_at == 4


@pytest.mark.parametrize("changed", ["which", "value"])
def test_what_is_frozen_belongs_to_the_training(changed, tmp_path):
    def frozen(place, factor=1.0):
        net, likelihood = pair(posterior=gilib.Factorised())
        list(net.parameters())[place].requires_grad_(False).mul_(factor)
        return net, likelihood

    with pytest.raises(KeyboardInterrupt):
        fit(*frozen(0), steps=12, checkpoint=Checkpoint(tmp_path / "run", 4), callbacks=[stop_at(10)])
    with pytest.raises(LOST, match="belongs to another model, data set"):
        fit(*(frozen(1) if changed == "which" else frozen(0, 2.0)), steps=12, checkpoint=tmp_path / "run")
    assert fit(*frozen(0), steps=12, checkpoint=tmp_path / "run").resumed_at == 8


@pytest.mark.parametrize("kind", [gilib.Adam, gilib.training.IVON])
def test_more_steps_would_be_another_schedule(kind, tmp_path):
    """But not where the factors do not ask how many there are."""
    short = {"net": partial(model, posterior=gilib.Factorised()), "path": tmp_path / "run"}
    scheduled = short | {"rule": kind(schedule=LinearDecay())}
    train(**scheduled)
    with pytest.raises(LOST, match=r"LinearDecay\(start=0.5\) over 4 steps"):
        train(**scheduled, steps=8)
    assert train(**scheduled).resumed_at == 4
    known = {"rule": kind(schedule=ExponentialDecay(0.5, 4)), "path": tmp_path / "other"}
    train(**(short | known), steps=5)
    resumed, straight = (train(**(short | known | {"path": p}), steps=10) for p in (known["path"], None))
    assert resumed.resumed_at == 5 and torch.equal(resumed.elbo, straight.elbo)


class Forgetful(gilib.training.Callback):
    """Has a state, and cannot take it back."""

    def __call__(self, step, bound, net):
        return False

    def state_dict(self):
        return {"seen": 1}


class ForgetfulRule(gilib.training.RunningRule):
    def step(self, batch):
        return torch.zeros(())

    def state_dict(self):
        return {"steps": 1}


class Forgets(gilib.training.Rule):
    def begin(self, problem):
        return ForgetfulRule(problem)


@pytest.mark.parametrize(
    "settings", [{"callbacks": [Forgetful()]}, {"rule": Forgets()}], ids=["callback", "rule"]
)
def test_a_state_that_cannot_be_taken_back_is_an_error(settings, tmp_path):
    train(tmp_path / "run", **settings)
    with pytest.raises(NotImplementedError, match=r"Forgetful\w* has a state_dict and no load_state_dict"):
        train(tmp_path / "run", steps=8, **settings)
