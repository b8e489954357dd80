"""One training loop: it shows, tempers and shuffles what it says; `test_schedules` has the plain loop."""

from functools import partial

import pytest
import torch

import gilib
from gilib.training.engine.minibatches import Minibatches
from tests.support import D, assert_equal, normals, seeded, small_net, trainings

X = normals(20, 2, seed=1)
Y = X.sin() + 0.1 * normals(20, 2, seed=2)
fit = partial(trainings.fit, x=X, y=Y)


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
    first = gilib.elbo(draw, gilib.Gaussian(0.1), X, Y, num_data=20, per_point=True, kl_weight=0.0)
    assert_equal(history.elbo[0], first.detach())


def test_learning_rates_by_name():
    """Adam's first step is the learning rate, whatever the gradient."""
    net, likelihood = small_net(gilib.GlobalInducing()), gilib.Gaussian(0.1, learn=True)
    names = {name: p for name, p in net.named_parameters()} | {"likelihood": likelihood.scaled_log_variance}
    before = {name: p.detach().clone() for name, p in names.items()}
    group = next(name for name in names if name.endswith("pseudo.outputs"))
    rates = {"inducing_points": 1e-3, group: 2e-4, "likelihood": 5e-5}
    fit(net, likelihood, steps=1, rule=gilib.Adam(1e-2, groups=rates))
    for name, parameter in names.items():
        moved = (parameter.detach() - before[name]).abs()
        torch.testing.assert_close(moved, torch.full_like(moved, rates.get(name, 1e-2)), rtol=1e-3, atol=0)


def test_the_same_seed_gives_the_same_training_and_another_one_another():
    runs = [fit(small_net(gilib.GlobalInducing()), batch_size=6, seed=seed).elbo for seed in (3, 3, 4)]
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_the_progress_bar(capsys):
    fit(small_net(gilib.Factorised()), steps=2)
    silent = capsys.readouterr()
    assert silent.out == silent.err == ""
    gilib.fit(small_net(gilib.Factorised()), gilib.Gaussian(0.1), X, Y, steps=2, num_samples=1)
    shown = capsys.readouterr()
    assert shown.out == "" and "2/2" in shown.err and "elbo=" in shown.err


def test_divergence_says_when():
    net = small_net(gilib.Factorised())
    with pytest.raises(gilib.training.DivergenceError, match=r"its gradient was not finite at step 1"):
        fit(net, steps=30, rule=gilib.Adam(1e4))


def test_a_failed_factorisation_names_the_layer():
    with pytest.raises(gilib.linalg.FactorisationError, match=r"layer \d, Linear"):
        fit(small_net(gilib.GlobalInducing()), steps=30, rule=gilib.Adam(1e4))


@pytest.mark.parametrize("size", [5, 6, 7])
def test_an_epoch_sees_every_point_at_most_once(size):
    x = torch.arange(20.0)[:, None]
    batches, epochs, count = Minibatches(x, x, -2, -2, size, 3), [], 20 // size
    for _ in range(3):
        epochs.append(torch.cat([batches.next()[0] for _ in range(count)]).flatten().tolist())
        assert len(set(epochs[-1])) == count * size
    assert epochs[0] != epochs[1] != epochs[2]
