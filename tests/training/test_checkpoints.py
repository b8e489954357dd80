"""What a checkpoint continues, keeps and refuses."""

import os

import pytest
import torch

import gilib
from gilib.training import Checkpoint
from tests.support import PRIORS, D, normals, small_net

X = normals(20, 2, seed=1)
Y = X.sin() + 0.1 * normals(20, 2, seed=2)


def fit(net, likelihood, path=None, *, x=X, y=Y, steps=12, **settings):
    settings = {"num_samples": 2, "seed": 3, "every": 4, "rule": gilib.Adam()} | settings
    every = settings.pop("every")
    checkpoint = None if path is None else Checkpoint(path, every)
    return gilib.fit(net, likelihood, x, y, steps=steps, checkpoint=checkpoint, progress=False, **settings)


def pair(posterior=None, prior="neal", **settings):
    net = small_net(posterior or gilib.GlobalInducing(), PRIORS[prior], **settings)
    return net, gilib.Gaussian(0.1, learn=True)


def stop_at(step):
    """Callbacks that stand for the power failing in the middle of a training."""

    def fail(done, bound, net):
        if done == step:
            raise KeyboardInterrupt

    return [fail]


def assert_same(a, b):
    for module, twin in zip(a, b, strict=True):
        for p, q in zip(module.parameters(), twin.parameters(), strict=True):
            assert torch.equal(p, q)


def test_more_steps_continue_a_finished_training(tmp_path):
    straight, longer, path = pair(), pair(), tmp_path / "checkpoint.pt"
    whole = fit(*straight, steps=10)
    fit(*pair(), path, steps=5)
    history = fit(*longer, path, steps=10)
    assert history.resumed_at == 5 and torch.equal(history.elbo, whole.elbo)
    assert_same(longer, straight)


def test_a_finished_training_is_not_repeated(tmp_path):
    first, again, path = pair(), pair(seed=9), tmp_path / "checkpoint.pt"
    whole, content = fit(*first, path), path.read_bytes()
    history = fit(*again, path)
    assert history.resumed_at == 12 and torch.equal(history.elbo, whole.elbo)
    assert path.read_bytes() == content
    assert_same(first, again)


OTHERS = {
    "posterior": (lambda path: fit(*pair(gilib.LocalInducing(num_inducing=5)), path), "network"),
    "learned noise": (lambda path: fit(pair()[0], gilib.Gaussian(0.1), path), "likelihood"),
    "batch size": (lambda path: fit(*pair(), path, batch_size=6), "batch_size: null there, 6 here"),
    "samples": (lambda path: fit(*pair(), path, num_samples=3), "num_samples: 2 there, 3 here"),
    "learning rate": (lambda path: fit(*pair(), path, rule=gilib.Adam(0.02)), "rule"),
    "seed": (lambda path: fit(*pair(), path, seed=4), "seed: 3 there, 4 here"),
    "data": (lambda path: fit(*pair(), path, x=X + 1), "inputs"),
    "targets": (lambda path: fit(*pair(), path, y=Y + 1), "targets"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_something_else_is_refused(name, tmp_path):
    path = tmp_path / "checkpoint.pt"
    fit(*pair(), path, steps=4)
    content = path.read_bytes()
    train, different = OTHERS[name]
    wanted = rf"belongs to another model, data set or setting \({different}\): choose another file"
    with pytest.raises(gilib.persistence.CheckpointError, match=wanted):
        train(path)
    assert path.read_bytes() == content


def test_a_checkpoint_with_another_fixed_noise_is_refused(tmp_path):
    """A noise that is not learned is a setting: resuming must not bring the old one back without a word."""
    path, net = tmp_path / "checkpoint.pt", small_net(gilib.GlobalInducing())
    fit(net, gilib.Gaussian(0.1), path, steps=4)
    with pytest.raises(gilib.persistence.CheckpointError, match="another model, data set or setting"):
        fit(net, gilib.Gaussian(0.2), path)


def foreign(path):
    torch.save({"format": "something else"}, path)


def truncated(path):
    fit(*pair(), path, steps=4)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (foreign, "holds 'something else', wanted 'gilib checkpoint 5'"),
        (lambda path: gilib.save(path, *pair()), "holds 'gilib model 1', wanted 'gilib checkpoint 5'"),
        (truncated, "damaged or not a file of gilib.*restore or delete it"),
    ],
)
def test_other_files_are_refused(damage, message, tmp_path):
    path = tmp_path / "checkpoint.pt"
    damage(path)
    net, likelihood = pair()
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(gilib.persistence.CheckpointError, match=message):
        fit(net, likelihood, path)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("where", ["", "folder", "file/below", "pipe"])
def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_step(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
    steps = []
    with pytest.raises(OSError, match="give the path of a file"):
        gilib.fit(
            *pair(),
            X,
            Y,
            checkpoint=where,
            steps=2,
            callbacks=[lambda *step: steps.append(step)],
            progress=False,
        )
    assert not steps and sorted(os.listdir()) == ["file", "folder", "pipe"]


def test_divergence_keeps_the_last_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.pt"
    net = gilib.models.mlp(2, (3,), 2, posterior=gilib.Factorised(), dtype=D)

    def explode(step, bound, net):
        if step == 6:
            next(net.parameters()).data.fill_(torch.nan)

    with pytest.raises(gilib.training.DivergenceError, match="step 6"):
        fit(net, gilib.Gaussian(0.1), path, callbacks=[explode])
    assert fit(net, gilib.Gaussian(0.1), path).resumed_at == 4


def test_a_checkpoint_beyond_the_steps_asked_for_is_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"
    fit(*pair(), path, steps=12)
    net, likelihood = pair()
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(gilib.persistence.CheckpointError, match="at step 12, beyond steps=8"):
        fit(net, likelihood, path, steps=8)
    assert all(torch.equal(p, q) for p, q in zip(before, net.parameters(), strict=True))


@pytest.mark.parametrize("changed", ["which", "value"])
def test_what_is_frozen_belongs_to_the_training(changed, tmp_path):
    def frozen(name, factor=1.0):
        net, likelihood = pair(gilib.Factorised())
        parameter = dict(net.named_parameters())[name].requires_grad_(False)
        parameter.mul_(factor)
        return net, likelihood

    first, second, *_ = dict(pair(gilib.Factorised())[0].named_parameters())
    with pytest.raises(KeyboardInterrupt):
        fit(*frozen(first), tmp_path / "run", callbacks=stop_at(10))
    other = frozen(second) if changed == "which" else frozen(first, 2.0)
    with pytest.raises(gilib.persistence.CheckpointError, match="belongs to another model, data set"):
        fit(*other, tmp_path / "run")
    assert fit(*frozen(first), tmp_path / "run").resumed_at == 8
