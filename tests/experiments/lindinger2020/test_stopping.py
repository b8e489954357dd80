"""Early stopping: when looks begin, how they are smoothed, and that a pause changes nothing."""

import torch

import gilib
from experiments.lindinger2020 import stopping
from experiments.lindinger2020.stopping import HoldOut
from gilib.training import Checkpoint
from tests.support import normals, seeded, small_net

X, Y = normals(9, 2, seed=3), normals(9, 2, seed=4)
STEPS = 12_000


def scripted(values, start=5000):
    """A hold-out whose look at step k is `values(k)`."""
    stop = HoldOut(gilib.Gaussian(0.1), X, Y, start=start)
    stop._score = lambda step, net: torch.tensor(float(values(step)))
    return stop


def ends(stop):
    stop.begin()
    return next((k for k in range(1, STEPS) if stop(k, torch.tensor(0.0), None)), None)


def test_one_rise_starts_the_count_again():
    """Means of 50 looks, by brute force."""

    def values(step):
        return -step + 2000.0 * (step >= 5200)

    def score(step):
        looks = [values(k) for k in range(10, step + 1, 10)][-50:]
        return sum(looks) / len(looks)

    falls, step = 0, 5050
    while falls < 5:
        step += 50
        falls = falls + 1 if score(step) < score(step - 50) else 0
    assert ends(scripted(values)) == step > 5500


def test_the_looks_before_the_first_strip_are_those_it_averages():
    seen = []
    stop = scripted(lambda step: seen.append(step) or 0.0)
    for step in range(1, 5051):
        stop(step, torch.tensor(0.0), None)
    assert seen == list(range(4510, 5051, 10)) and len(stop.scores) == stopping.SMOOTHED


def test_a_score_is_the_mixture_of_new_draws():
    """By hand: the log of the mean density over draws, averaged over points."""
    net, likelihood = small_net(gilib.Factorised()), gilib.Gaussian(0.3)
    stop = HoldOut(likelihood, X, Y, num_samples=4, seed=7)
    estimate = net.estimate(4, len(X), generator=seeded(1_000_003 * 20 + 7))
    density = torch.distributions.Normal(estimate(X), 0.3**0.5).log_prob(Y).sum(-1)
    expected = (density.logsumexp(0) - torch.tensor(4.0).log()).mean()
    assert torch.allclose(stop._score(20, net), expected, rtol=1e-10)
    assert stop._score(20, net) != stop._score(30, net)


def test_a_pause_changes_nothing(tmp_path, monkeypatch):
    """The scores are in the checkpoint: resumed at any step, it ends where it would have ended."""
    for name, value in {"SMOOTHED": 4, "STRIP": 10, "STRIPS": 2}.items():
        monkeypatch.setattr(stopping, name, value)

    def fit(count, path):
        net, likelihood = small_net(gilib.Factorised()), gilib.Gaussian(0.1)
        stop = HoldOut(likelihood, X, Y, start=40, num_samples=2)
        settings = {"num_samples": 2, "callbacks": [stop], "progress": False}
        settings["checkpoint"] = Checkpoint(path, every=1)
        data = normals(20, 2), normals(20, 2, seed=1)
        history = gilib.fit(net, likelihood, *data, rule=gilib.Adam(), steps=count, **settings)
        return history.elbo, stop.state_dict()

    straight, scored = fit(120, tmp_path / "one")
    for steps in (61, 90):
        fit(min(steps, len(straight)), tmp_path / str(steps))
        resumed, again = fit(120, tmp_path / str(steps))
        assert torch.equal(straight, resumed)
        assert all(torch.equal(a, b) for a, b in zip(scored["scores"], again["scores"], strict=True))
