"""One training loop is Adam on the ELBO of augmented inputs; it shows, tempers and shuffles what it says."""

import math

import pytest
import torch

import gilib
from gilib.training import CosineDecay, ExponentialDecay, LinearDecay, PiecewiseConstant
from gilib.training.engine.minibatches import Minibatches
from tests.support import D, assert_equal, seeded, small_net, trainings
from tests.support.trainings import N, fit, model, shake

X, Y, STEPS = trainings.X[0], trainings.Y[0], 10
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
    rule = gilib.Adam(0.03, groups={"inducing_points": 0.01, "likelihood": 0.02}, schedule=schedule)
    history = fit(*parts, steps=STEPS, rule=rule, seed=5, augment=shake)
    rates = {0.03: [p for p in net.parameters() if p is not net.inducing_points]}
    rates |= {0.01: [net.inducing_points], 0.02: [*likelihood.parameters()]}
    adam = torch.optim.Adam([{"params": own, "lr": rate} for rate, own in rates.items()])
    scheduler, noise, stream = torch.optim.lr_scheduler.LambdaLR(adam, factor), seeded(5), seeded(7)
    for step in range(STEPS):
        bound = gilib.elbo(net.draw(2, generator=noise), likelihood, shake(X, stream), Y, num_data=N)
        adam.zero_grad()
        (-bound / N).backward()
        adam.step()
        scheduler.step()
        assert_equal(history.elbo[step], bound.detach() / N, 1e-10)
    for ours, theirs in zip(parts, plain, strict=True):
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert_equal(p.detach(), q.detach(), 1e-10)


class Recording(gilib.Gaussian):
    """A Gaussian likelihood that remembers the targets that it saw."""

    def __init__(self):
        super().__init__(0.1)
        self.seen = []

    def log_prob(self, outputs, targets):
        self.seen.append(targets)
        return super().log_prob(outputs, targets)


def test_a_batch_as_large_as_the_data_is_the_data():
    likelihood = Recording()
    fit(small_net(gilib.Factorised()), likelihood, steps=2, batch_size=100)
    assert all(torch.equal(seen, Y) for seen in likelihood.seen)


def test_inputs_and_targets_of_a_batch_belong_together():
    seen = []

    class Inputs(torch.nn.Module):
        def forward(self, x):
            seen.append(x)
            return x

    likelihood = Recording()
    net = gilib.Network(None, [Inputs(), gilib.Linear(2, 2, gilib.Factorised())], input_shape=(2,), dtype=D)
    seen.clear()
    fit(net, likelihood, steps=5, batch_size=4)
    for x, y in zip(seen, likelihood.seen, strict=True):
        for row, target in zip(x, y, strict=True):
            assert torch.equal(Y[(X == row).all(-1)][0], target)


def test_tempering_gets_the_step_and_weighs_the_ratio():
    steps, net, twin = [], small_net(gilib.GlobalInducing()), small_net(gilib.GlobalInducing())

    def schedule(step):
        steps.append(step)
        return 0.1 * step

    history = fit(net, steps=3, kl_weight=schedule, seed=7)
    assert steps == [0, 1, 2]
    draw = twin.draw(2, generator=seeded(7))
    first = gilib.elbo(draw, gilib.Gaussian(0.1), X, Y, num_data=N, per_point=True, kl_weight=0.0)
    assert_equal(history.elbo[0], first.detach())


def test_the_same_seed_gives_the_same_training_and_another_one_another():
    runs = [fit(small_net(gilib.GlobalInducing()), batch_size=6, seed=seed).elbo for seed in (3, 3, 4)]
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_the_progress_bar(capsys):
    fit(small_net(gilib.Factorised()), steps=2)
    silent = capsys.readouterr()
    assert silent.out == silent.err == ""
    fit(small_net(gilib.Factorised()), steps=2, progress=True)
    shown = capsys.readouterr()
    assert shown.out == "" and "2/2" in shown.err and "elbo=" in shown.err


@pytest.mark.parametrize("size", [5, 6, 7])
def test_an_epoch_sees_every_point_at_most_once(size):
    x = torch.arange(20.0)[:, None]
    batches, epochs, count = Minibatches(x, x, -2, -2, size, 3), [], 20 // size
    for _ in range(3):
        epochs.append(torch.cat([batches.next()[0] for _ in range(count)]).flatten().tolist())
        assert len(set(epochs[-1])) == count * size
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize(
    ("augment", "error", "message"),
    [
        ("flip", TypeError, "augment must be a function of inputs and generator, got 'flip'"),
        (lambda x: x, TypeError, r"<lambda> at .* cannot be called as augment\(x, generator=.*'generator'"),
        (torch.neg, TypeError, r"cannot be called as augment\(x, generator=\.\.\.\): no signature"),
        (lambda x, generator: x[:1], ValueError, r"\[12, 2\] of torch.float64 on cpu, got \[1, 2\] of"),
        (lambda x, generator: x.float(), ValueError, r"got \[12, 2\] of torch.float32 on cpu"),
        (lambda x, generator: None, ValueError, "like those it was given, .*, got NoneType"),
        (lambda x, generator: x.add_(1.0), ValueError, "changed its inputs in place"),
    ],
)
def test_what_is_refused(augment, error, message):
    with pytest.raises(error, match=message):
        fit(model(), None, X.clone(), augment=augment)


def test_a_function_that_a_checkpoint_cannot_tell_from_another(tmp_path):
    with pytest.raises(TypeError, match="a checkpoint cannot tell augment="):
        fit(model(), checkpoint=tmp_path / "run", augment=lambda x, generator: x)
