"""Early stopping: the best look at held-out points, bit for bit, whoever ends the training."""

import copy

import pytest
import torch

import gilib
from gilib.training import Bali, EarlyStopping
from tests.support import D, normals, seeded, step_by_step
from tests.support.trainings import same

R, EVERY = 3, 4
X, HELD_X = normals(14, 2, seed=1), normals(30, 2, seed=3)
Y, HELD_Y = (
    x.sum(1, keepdim=True).sin() + 0.3 * normals(len(x), 1, seed=k) for k, x in ((2, X), (4, HELD_X))
)


def start(replicas=(), posterior=gilib.PointEstimate()):  # noqa: B008
    """Few noisy points and many weights: a point estimate is best long before it has converged."""
    settings = {"posterior": posterior, "replicas": replicas, "dtype": D, "generator": seeded()}
    net = gilib.models.mlp(2, (30,), 1, **settings)
    return net, gilib.Gaussian(1.0, learn=True, replicas=replicas).to(D)


def fit(net, likelihood, stop, steps=120, rule=gilib.Adam(0.03), **settings):  # noqa: B008
    settings = {"num_samples": 1, "rule": rule, "progress": False, "callbacks": [stop]} | settings
    return gilib.fit(net, likelihood, X, Y, steps=steps, **settings)


def stopping(likelihood, patience=10, **settings):
    settings = {"every": EVERY, "patience": patience, "num_samples": 2} | settings
    return EarlyStopping(likelihood, HELD_X, HELD_Y, **settings)


def score(net, likelihood):
    prediction = gilib.predict(net, likelihood, HELD_X, 2, generator=seeded())
    return prediction.log_prob(HELD_Y).mean(-1)


class Watch:
    """Copies of the state at every look, and their scores."""

    def __init__(self, likelihood):
        self.likelihood, self.states, self.scores = likelihood, [], []

    def __call__(self, step, bound, net):
        if step % EVERY == 0:
            modules = torch.nn.ModuleList([net, self.likelihood])
            self.states.append(copy.deepcopy(modules.state_dict()))
            self.scores.append(score(net, self.likelihood))


@pytest.mark.parametrize(
    ("posterior", "patience"), [("point", 3), ("point", 1000), ("factorised", 3), ("bali", 3)]
)
def test_it_ends_at_the_best_look(posterior, patience):
    """Whether it ends the training or the steps are over; learned noise and buffers included."""
    kinds = {"point": gilib.PointEstimate(), "factorised": gilib.Factorised()}
    net, likelihood = start(posterior=kinds.get(posterior) or gilib.posteriors.Conjugate())
    stop, watch = stopping(likelihood, patience), Watch(likelihood)
    rule = Bali(1.0) if posterior == "bali" else gilib.Adam(0.03)
    history = fit(net, likelihood, stop, rule=rule, callbacks=[watch, stop])
    scores = torch.stack(watch.scores)
    best = int(scores.argmax())
    assert torch.equal(torch.stack(stop.scores), scores) and float(stop.best) == float(scores[best])
    assert len(history.elbo) == (EVERY * (best + 1 + patience) if patience == 3 else 120)
    assert best < len(scores) - 1 and float(score(net, likelihood)) == float(scores[best])
    found = torch.nn.ModuleList([net, likelihood]).state_dict()
    for name, value in watch.states[best].items():
        assert torch.equal(found[name], value), name


def test_replicas_return_each_to_its_own_look():
    net, likelihood = start((R,), gilib.Factorised())
    stop, watch = stopping(likelihood, 3), Watch(likelihood)
    fit(net, likelihood, stop, rule=gilib.Adam([0.01, 0.1, 0.03]), callbacks=[watch, stop])
    best = torch.stack(watch.scores).argmax(0)
    assert len(set(best.tolist())) > 1
    found = torch.nn.ModuleList([net, likelihood]).state_dict()
    for name, value in found.items():
        own = [watch.states[int(best[r])][name] for r in range(R)]
        if value.shape[:1] == (R,):
            assert all(torch.equal(value[r], own[r][r]) for r in range(R)), name


@pytest.mark.parametrize("replicas", [(), (R,)])
def test_it_resumes(replicas, tmp_path):
    settings = {"seed": [1, 2, 3] if replicas else 3, "steps": 20}

    def train(net, likelihood, **checkpoint):
        return fit(net, likelihood, stopping(likelihood, 3), **checkpoint, **settings)

    whole, again = start(replicas), start(replicas)
    expected = train(*whole)
    parts, history, pauses = step_by_step(tmp_path / "run", lambda: start(replicas), train)
    assert pauses > 5 and torch.equal(history.elbo, expected.elbo)
    train(*again, checkpoint=tmp_path / "run")  # which is over
    assert same(whole, parts) and same(whole, again)


def test_looks_without_a_number_are_no_gain(monkeypatch):
    net, likelihood = start()
    stop, values = stopping(likelihood, 2), iter([float("nan"), -1.0, float("nan"), -2.0])
    monkeypatch.setattr(stop, "_score", lambda net: torch.tensor(next(values)))
    assert len(fit(net, likelihood, stop).elbo) == 4 * EVERY and float(stop.best) == -1.0


def test_without_any_number_the_training_is_what_it_was(monkeypatch):
    """Replicas by themselves: the second one has no number at any look."""
    ends = []
    for broken in (True, False):
        net, likelihood = start((R,))
        stop = stopping(likelihood, 1000)
        score_of = stop._score
        if broken:
            nan = torch.tensor([0.0, float("nan"), 0.0])
            monkeypatch.setattr(stop, "_score", lambda net, of=score_of, nan=nan: of(net) + nan)
        fit(net, likelihood, stop, 20, seed=[1, 2, 3], callbacks=[stop] if broken else [])
        ends.append([p.detach().clone() for p in net.parameters()])
    assert all(torch.equal(p[1], q[1]) for p, q in zip(*ends, strict=True))


def test_what_it_keeps_follows_the_network():
    """A checkpoint is read on the CPU; the device is another where the training goes on."""
    net, likelihood = start()
    stop = stopping(likelihood)
    fit(net, likelihood, stop, 2 * EVERY)
    stop.kept = {name: value.to(torch.float32) for name, value in stop.kept.items()}  # stands for a device
    stop._keep(net, torch.tensor(False))
    assert all(value.dtype == D for value in stop.kept.values())


def test_what_is_refused():
    net, likelihood = start()
    with pytest.raises(ValueError, match="EarlyStopping was given another likelihood than fit"):
        fit(net, likelihood, stopping(gilib.Gaussian(1.0, learn=True).to(D)))
    with pytest.raises(ValueError, match="x must hold points of shape"):
        fit(net, likelihood, EarlyStopping(likelihood, HELD_X[:, :1], HELD_Y))
    with pytest.raises(ValueError, match="EarlyStopping keeps a state for every replica, and .*log_variance"):
        many, _ = start((R,))
        fit(many, likelihood, stopping(likelihood), seed=[1, 2, 3])
