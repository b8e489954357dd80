"""The engine trains by any rule: one of a reader's own updates buffers, without parameters and gradients."""

import pytest
import torch

import gilib
from gilib.training import Speed
from tests.support import D, assert_equal, seeded
from tests.support.rules import SD, MovingAverages, averaged
from tests.support.trainings import N, R, X, Y, fit

NOISE, SOLUTION = gilib.Gaussian(0.3), torch.linalg.lstsq(X[0], Y[0]).solution


def mean(net):
    return next(iter(net.layers)).mean


def test_buffers_reach_the_least_squares_solution():
    """In the full batch from the first step on; the trace holds the bound before each step."""
    net = averaged()
    assert not list(net.parameters())
    history = fit(net, NOISE, rule=MovingAverages(ridge=0.0))
    assert_equal(mean(net), SOLUTION, 1e-10)
    generator = seeded()
    for step, weights in enumerate([torch.zeros_like(SOLUTION), SOLUTION]):
        noise = torch.randn(2, 4, generator=generator, dtype=D).unflatten(-1, (2, 2))
        outputs = X[0] @ (weights + SD * noise)
        expected = torch.distributions.Normal(outputs, 0.3**0.5).log_prob(Y[0]).sum((-2, -1)).mean() / N
        assert_equal(history.elbo[step], expected, 1e-10)


def test_its_own_numbers_are_not_those_of_the_draws():
    """The jitter of the means, [2, 2], would else repeat the first draw."""
    net = averaged()
    fit(net, NOISE, steps=1, rule=MovingAverages(jitter=1.0, ridge=0.0), seed=5)
    for offset in range(3):
        other = torch.randn(2, 2, generator=seeded(5 + offset), dtype=D)
        assert float((mean(net) - SOLUTION - other).abs().max()) > 1e-3


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
        fit(averaged((R,)), NOISE, X, Y, **({"rule": MovingAverages()} | settings))
