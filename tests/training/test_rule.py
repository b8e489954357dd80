"""The engine trains by any rule: one of a reader's own updates buffers, without parameters and gradients."""

from dataclasses import dataclass

import pytest
import torch

import gilib
from gilib.training import Rule, RunningRule, Speed
from tests.support import assert_equal, normals
from tests.support.rules import SD, MovingAverages, averaged

R, N, STEPS, SEEDS = 3, 12, 9, [7, 1, 4]
X, Y = normals(R, N, 2, seed=1), normals(R, N, 2, seed=2)
NOISE = gilib.Gaussian(0.3)


def fit(net, x=X[0], y=Y[0], *, rule=MovingAverages(jitter=0.1), steps=STEPS, likelihood=NOISE, **settings):  # noqa: B008
    settings = {"num_samples": 2, "progress": False} | settings
    return gilib.fit(net, likelihood, x, y, steps=steps, rule=rule, **settings)


def mean(net):
    return next(iter(net.layers)).mean


def test_buffers_reach_the_least_squares_solution():
    """In the full batch from the first step on; the trace holds the bound before each step."""
    net = averaged()
    assert not list(net.parameters())
    history = fit(net, rule=MovingAverages(ridge=0.0))
    solution = torch.linalg.lstsq(X[0], Y[0]).solution
    assert_equal(mean(net), solution, 1e-10)
    generator = torch.Generator().manual_seed(0)
    for step, weights in enumerate([torch.zeros_like(solution), solution]):
        noise = torch.randn(2, 4, generator=generator, dtype=torch.float64).unflatten(-1, (2, 2))
        outputs = X[0] @ (weights + SD * noise)
        expected = torch.distributions.Normal(outputs, 0.3**0.5).log_prob(Y[0]).sum((-2, -1)).mean() / N
        assert_equal(history.elbo[step], expected, 1e-10)


def test_its_own_numbers_are_not_those_of_the_draws():
    """The jitter of the means, [2, 2], would else repeat the first draw."""
    net = averaged()
    fit(net, steps=1, rule=MovingAverages(jitter=1.0, ridge=0.0), seed=5)
    moved = mean(net) - torch.linalg.lstsq(X[0], Y[0]).solution
    streams = [torch.Generator().manual_seed(5 + offset) for offset in range(3)]
    for stream in streams:
        other = torch.randn(2, 2, generator=stream, dtype=torch.float64)
        assert float((moved - other).abs().max()) > 1e-3


def test_a_checkpoint_of_another_rule_is_refused(tmp_path):
    path = tmp_path / "checkpoint"
    fit(averaged(), checkpoint=path)
    with pytest.raises(gilib.persistence.CheckpointError, match="another model, data set or setting"):
        fit(averaged(), rule=MovingAverages(0.8), checkpoint=path)
    assert fit(averaged(), checkpoint=path).resumed_at == STEPS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": gilib.Adam()}, "nothing to train"),
        ({"on_divergence": "freeze"}, "RunningAverages cannot leave out a replica"),
        ({"speed": Speed(replay=True)}, "needs a rule that can be recorded"),
        ({"rule": MovingAverages}, "rule must be"),
        ({"rule": None}, "rule must be"),
    ],
)
def test_what_is_refused(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(averaged((R,)), X, Y, **settings)


class Forgetful(RunningRule):
    """Has a state, and cannot take it back."""

    def step(self, batch):
        return torch.zeros(())

    def state_dict(self):
        return {"steps": 1}


@dataclass(frozen=True)
class Forgets(Rule):
    def begin(self, problem):
        return Forgetful(problem)


def test_a_state_that_cannot_be_taken_back_is_an_error(tmp_path):
    fit(averaged(), rule=Forgets(), checkpoint=tmp_path / "checkpoint")
    with pytest.raises(NotImplementedError, match="Forgetful has a state_dict and no load_state_dict"):
        fit(averaged(), rule=Forgets(), checkpoint=tmp_path / "checkpoint", steps=20)
