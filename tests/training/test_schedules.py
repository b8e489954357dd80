"""The loop is Adam on the ELBO of augmented inputs, with the rates of torch's scheduler."""

import math

import pytest
import torch

import gilib
from gilib.training import IVON, CosineDecay, ExponentialDecay, LinearDecay, PiecewiseConstant
from tests.support import assert_equal, normals, seeded, small_net

R, N, STEPS = 3, 12, 10
X, Y = normals(R, N, 2, seed=1), normals(R, N, 2, seed=2)
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


def fit(net, likelihood=None, x=X[0], y=Y[0], *, steps=STEPS, **settings):
    likelihood = likelihood or gilib.Gaussian(0.1)
    return gilib.fit(net, likelihood, x, y, steps=steps, num_samples=2, progress=False, **settings)


def model(replicas=()):
    return small_net(gilib.GlobalInducing(), replicas=replicas)


def shake(x, generator):
    return x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_loop_is_adam_on_the_elbo(name):
    """The same numbers as a loop written plainly; augmentation has a stream seeded two above the draws."""
    schedule, factor = SCHEDULES[name]
    parts, plain = ((model(), gilib.Gaussian(0.1, learn=True)) for _ in range(2))
    net, likelihood = plain
    rule = gilib.Adam(0.03, groups={"inducing_points": 0.01}, schedule=schedule)
    history = fit(*parts, rule=rule, seed=5, augment=shake)
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


@pytest.mark.parametrize("kind", [gilib.Adam, IVON])
def test_more_steps_would_be_another_schedule(kind, tmp_path):
    path, rule = tmp_path / "run", kind(schedule=LinearDecay())
    net = small_net(gilib.Factorised())
    fit(net, rule=rule, checkpoint=path, steps=4)
    with pytest.raises(gilib.persistence.CheckpointError, match=r"LinearDecay\(start=0.5\) over 4 steps"):
        fit(net, rule=rule, checkpoint=path, steps=8)
    assert fit(net, rule=rule, checkpoint=path, steps=4).resumed_at == 4


def test_more_steps_of_a_schedule_that_does_not_ask_how_many(tmp_path):
    path, rule = tmp_path / "run", gilib.Adam(schedule=SCHEDULES["constant"][0])
    fit(model(), rule=rule, checkpoint=path, steps=5)
    straight, longer = model(), model()
    fit(straight, rule=rule)
    assert fit(longer, rule=rule, checkpoint=path).resumed_at == 5
    assert all(torch.equal(p, q) for p, q in zip(longer.parameters(), straight.parameters(), strict=True))


def test_another_schedule_is_refused(tmp_path):
    path = tmp_path / "run"
    fit(model(), rule=gilib.Adam(schedule=LinearDecay(0.5)), checkpoint=path, steps=4)
    for other in (None, LinearDecay(0.4), ExponentialDecay(0.5, 4)):
        with pytest.raises(gilib.persistence.CheckpointError, match="another model, data set or setting"):
            fit(model(), rule=gilib.Adam(schedule=other), checkpoint=path, steps=4)
