"""BALI among others: callbacks, layers of one's own, replicas that broke down."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

import gilib
from gilib.randomness import Noise
from tests.support import D, assert_equal, seeded
from tests.support.layerwise import B, N, X, Y, fit, model, noise, regressions
from tests.support.resuming import step_by_step


def draws(net):
    return net.draw(4, generator=seeded(6))(X[:7])


@pytest.mark.parametrize("dtype", [D, torch.float32])
def test_trainings_go_on_after_a_replica_broke_down(dtype, tmp_path):
    """From a checkpoint to the last bit; and a second training, in which replicas have steps of their own."""
    x, y = X.expand(2, N, 2).to(dtype), Y.expand(2, N, 2).to(dtype).clone()
    y[0, 5] = 1e30 if dtype == torch.float32 else 1e200
    settings = {"on_divergence": "freeze", "batch_size": B, "steps": 4, "seed": [1, 2]}

    def start():
        return model(replicas=(2,), dtype=dtype), noise((2,))

    whole = start()
    expected = fit(*whole, x, y, **settings)
    _, found, _ = step_by_step(tmp_path / "c.pt", start, partial(fit, x=x, y=y, **settings))
    assert expected.diverged_at[0] >= 0 > expected.diverged_at[1]
    assert torch.equal(found.diverged_at, expected.diverged_at)
    assert torch.equal(found.elbo[:, 1], expected.elbo[:, 1])
    again = fit(*whole, x, Y.expand(2, N, 2).to(dtype), **settings)
    assert bool((again.diverged_at == -1).all()) and bool(again.elbo.isfinite().all())


def test_a_callback_may_load_another_state():
    """Averages then go on from its steps, and draws from its factor."""
    net, late = model(), []
    before = copy.deepcopy(net.state_dict())

    def load(step, bound, own):
        if step == 3:
            own.load_state_dict(before)

    def keep(step, bound, own):
        late.append(draws(own))

    fit(net, noise(), steps=6, batch_size=B, callbacks=(load, keep))
    assert all(int(own.steps) == 3 for own in regressions(net))
    other = model()
    other.load_state_dict(net.state_dict())
    assert_equal(draws(net), draws(other), 1e-10)
    assert_equal(late[-1], draws(other), 1e-10)


class Wrapped(gilib.layers.Layer):
    """A layer of one's own, which adds to the score of the one inside it."""

    has_weights = True

    def __init__(self):
        super().__init__()
        self.inner = gilib.Linear(2, 5, gilib.posteriors.Conjugate(), gilib.NealPrior(3.0**0.5))

    def build(self, shape, context):
        shape = self.inner.join(shape, context)
        self.noise_size, self.replicas = self.inner.noise_size, context.replicas
        return shape

    def sample(self, inducing, noise, mode):
        drawn = self.inner.sample(inducing, noise, mode)
        return mode(drawn.function, drawn.log_pq + 12.0)

    def config(self):
        return {}


class Shuffled(Wrapped):
    """A layer that takes its noise in an order of its own."""

    def sample(self, inducing, noise, mode):
        return super().sample(inducing, Noise(noise.draw.flip(-1), noise.points), mode)


def test_noise_in_another_order_is_refused():
    """Residuals would be taken elsewhere than at the draw."""
    last = gilib.Linear(5, 2, gilib.posteriors.Conjugate(), gilib.NealPrior(3.0**0.5))
    net = gilib.Network(None, [Shuffled(), nn.Tanh(), last], input_shape=(2,), dtype=D)
    with pytest.raises(ValueError, match="noise of layers in the order of evaluation"):
        fit(net, noise(), steps=1, batch_size=B)


def test_a_layer_of_ones_own_finds_a_score():
    """The same training, and a bound that knows what it adds."""
    prior, conjugate, histories = gilib.NealPrior(3.0**0.5), gilib.posteriors.Conjugate(), []
    for first in (Wrapped(), gilib.Linear(2, 5, conjugate, prior)):
        layers = [first, nn.Tanh(), gilib.Linear(5, 2, conjugate, prior)]
        net = gilib.Network(None, layers, input_shape=(2,), dtype=D)
        histories.append(fit(net, noise(), steps=5, batch_size=B))
    assert_equal(histories[0].elbo - 12.0 / N, histories[1].elbo, 1e-9)
