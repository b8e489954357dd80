"""The loop is Adam on the ELBO of augmented inputs, with the rates of torch's scheduler."""

import math

import pytest
import torch

import gilib
from gilib.training import CosineDecay, ExponentialDecay, LinearDecay, PiecewiseConstant
from tests.support import assert_equal, seeded
from tests.support.trainings import N, X, Y, fit, model, shake

STEPS = 10
SCHEDULES = {
    "none": (None, lambda step: 1.0),
    "linear": (LinearDecay(0.5), lambda step: 1.0 if step < 5 else (10 - step) / 5),
    "constant": (
        PiecewiseConstant((3, 7), (1.0, 0.4, 0.1)),
        lambda step: 1.0 - 0.6 * (step > 2) - 0.3 * (step > 6),
    ),
    "cosine": (
        CosineDecay(0.5, 0.1),
        lambda step: 1.0 if step < 5 else 0.55 + 0.45 * math.cos(math.pi * (step - 5) / 5),
    ),
    "exponential": (ExponentialDecay(0.5, 4), lambda step: 2.0 ** (-step / 4)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_loop_is_adam_on_the_elbo(name):
    """The same numbers as a loop written plainly; augmentation has a stream seeded two above the draws."""
    schedule, factor = SCHEDULES[name]
    parts, plain = ((model(), gilib.Gaussian(0.1, learn=True)) for _ in range(2))
    net, likelihood = plain
    rule = gilib.Adam(0.03, groups={"inducing_points": 0.01}, schedule=schedule)
    history = fit(*parts, steps=STEPS, rule=rule, seed=5, augment=shake)
    slow, fast = [net.inducing_points], [*likelihood.parameters()]
    fast += [p for p in net.parameters() if p is not net.inducing_points]
    adam = torch.optim.Adam([{"params": fast, "lr": 0.03}, {"params": slow, "lr": 0.01}])
    scheduler, noise, stream = torch.optim.lr_scheduler.LambdaLR(adam, factor), seeded(5), seeded(7)
    for step in range(STEPS):
        bound = gilib.elbo(net.draw(2, generator=noise), likelihood, shake(X[0], stream), Y[0], num_data=N)
        adam.zero_grad()
        (-bound / N).backward()
        adam.step()
        scheduler.step()
        assert_equal(history.elbo[step], bound.detach() / N, 1e-10)
    for ours, theirs in zip(parts, plain, strict=True):
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert_equal(p.detach(), q.detach(), 1e-10)
