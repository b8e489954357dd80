"""Trainings by BALI: what it serves, survives, warns of and refuses; precisions, own layers, replicas."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

import gilib
from gilib.randomness import Noise
from gilib.training import Bali, Speed
from gilib.training.rules import bali
from gilib.training.rules.bali import LayerRegression, rate_at
from tests.support import D, assert_equal, refusals, seeded, step_by_step
from tests.support.layerwise import LABELS, STEPS, B, N, X, Y, dense, fit, model, network, noise, regressions

PRIOR = gilib.NealPrior(3.0**0.5)
BOTH = pytest.mark.parametrize("rule", [Bali(), Bali(keep_moments=True)], ids=["plain", "kept"])


def test_outputs_sampled_in_place_of_weights():
    """BALI-L: the same fit, from noise of other shape; deterministic steps do not tell the two apart."""
    nets = {face: model() for face in ("draw", "pointwise")}
    for face, net in nets.items():
        fit(net, noise(), estimator=face, steps=40)
        errors = (net.draw(50, generator=seeded())(X).mean(0) - Y).square().mean()
        assert float(errors) < 0.5 * float(Y.var())
    assert not torch.allclose(*(regressions(net)[0].mean for net in nets.values()))
    still = {}
    for face in nets:
        net = model()
        net.load_state_dict(nets["draw"].state_dict())
        fit(net, noise(), estimator=face, steps=3, rule=Bali(deterministic=True))
        still[face] = regressions(net)[0].mean
    assert_equal(still["draw"], still["pointwise"], 1e-10)


def test_single_precision_follows_double_precision():
    """Where the likelihood is log-concave they end together: rounding is 6e-5 a step, and steps contract."""
    began, outputs = model(3, ()), []
    fit(began, gilib.Categorical(), X, LABELS, steps=5)
    for dtype in (D, torch.float32):
        net = model(3, (), dtype=dtype)
        net.load_state_dict(began.state_dict())
        fit(net, gilib.Categorical(), X.to(dtype), LABELS, steps=80, rule=Bali(deterministic=True))
        still = torch.zeros(1, net.layers.noise_size, dtype=dtype)
        outputs.append(net.draw(noise=still)(X.to(dtype))[0].double())
    assert float((outputs[0] - outputs[1]).norm() / outputs[0].norm()) < 1e-3


def test_inputs_of_rank_one_in_single_precision():
    """Of the residual scatter in some directions nothing is left but the prior, and rounding is larger."""
    for seed in range(4):
        source = seeded(seed)
        seen = torch.randn(40_000, 1, generator=source)
        x = seen @ torch.randn(1, 16, generator=source).sign()
        net = gilib.models.mlp(16, (50,), 1, posterior=gilib.posteriors.Conjugate(), generator=source)
        likelihood, steps = noise(), 3 if seed else 30
        fit(net, likelihood, x, seen.sin(), rule=Bali(lr=1.0), steps=steps, batch_size=1000)
        if steps == 30:
            errors = gilib.predict(net, likelihood, x[:1000], 50).mean - seen[:1000].sin()
            assert float(errors.square().mean()) < 0.05 * float(seen.sin().var())


def test_a_second_training_continues_the_averages():
    net, likelihood = model(), noise()
    fit(net, likelihood, rule=Bali(schedule=None))
    before = [own.mean.clone() for own in regressions(net)]
    fit(net, likelihood, steps=1, rule=Bali(1e-9, update_rate=1e-6, schedule=None))
    for own, mean in zip(regressions(net), before, strict=True):
        assert int(own.steps) == STEPS + 1
        assert float((own.mean - mean).norm() / mean.norm()) < 0.5  # γ = 1 / 13, not 1


def test_a_residual_block_inside_is_served(recwarn):
    """Its layers are regressions like all others; a full batch of few points is no reason to warn."""
    net = network(dense(2, 4), gilib.Residual([nn.Tanh(), dense(4, 4)]), nn.Tanh(), dense(4, 2))
    fit(net, noise(), X[:50], Y[:50], steps=70)
    mean = net.draw(50, generator=seeded())(X[:50]).mean(0)
    assert float((mean - Y[:50]).square().mean()) < 0.3 * float(Y.var())
    assert not recwarn.list


def draws(net):
    return net.draw(4, generator=seeded(6))(X[:7])


@pytest.mark.parametrize("dtype", [D, torch.float32])
@BOTH
def test_trainings_go_on_after_a_replica_broke_down(rule, dtype, tmp_path):
    """From a checkpoint to the last bit; and a second training, in which replicas have steps of their own."""
    x, y = X.expand(2, N, 2).to(dtype), Y.expand(2, N, 2).to(dtype).clone()
    y[0, 5] = 1e30 if dtype == torch.float32 else 1e200
    settings = {"on_divergence": "freeze", "batch_size": B, "steps": 4, "seed": [1, 2], "rule": rule}

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


@BOTH
def test_a_callback_may_load_another_state(rule, monkeypatch):
    """Averages then go on from its steps, and draws from its factor."""
    net, late, counts = model(), [], []
    monkeypatch.setattr(bali, "rate_at", lambda rate, count: counts.append(count) or rate_at(rate, count))
    before = copy.deepcopy(net.state_dict())

    def load(step, bound, own):
        if step == 3:
            own.load_state_dict(before)

    def keep(step, bound, own):
        late.append(draws(own))

    fit(net, noise(), steps=6, batch_size=B, rule=rule, callbacks=(load, keep))
    assert all(int(own.steps) == 3 for own in regressions(net)) and counts[::3] == [1, 2, 3, 1, 2, 3]
    other = model()
    other.load_state_dict(net.state_dict())
    assert_equal(draws(net), draws(other), 1e-10)
    assert_equal(late[-1], draws(other), 1e-10)


class Wrapped(gilib.layers.Layer):
    """A layer of one's own, which adds to the score of the one inside it."""

    has_weights = True

    def __init__(self):
        super().__init__()
        self.inner = dense(2, 5, prior=PRIOR)

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
    net = network(Shuffled(), nn.Tanh(), dense(5, 2, prior=PRIOR))
    with pytest.raises(ValueError, match="noise of layers in the order of evaluation"):
        fit(net, noise(), steps=1, batch_size=B)


def test_a_layer_of_ones_own_finds_a_score():
    """The same training, and a bound that knows what it adds."""
    histories = []
    for first in (Wrapped(), dense(2, 5, prior=PRIOR)):
        net = network(first, nn.Tanh(), dense(5, 2, prior=PRIOR))
        histories.append(fit(net, noise(), steps=5, batch_size=B))
    assert_equal(histories[0].elbo - 12.0 / N, histories[1].elbo, 1e-9)


def test_gradients_that_are_not_finite_are_reported():
    """At once, before the state has changed, with the layer."""
    y, net = Y.clone(), model()
    y[0] = 1e200
    with pytest.raises(gilib.linalg.FactorisationError, match=r"Linear\(2 → 5\): .* training has diverged"):
        fit(net, noise(), X, y)
    assert all(int(own.steps) == 0 and bool((own.mean == 0).all()) for own in regressions(net))


def dead(dtype=D):
    """All units of the layer below are dead."""
    return network(dense(2, 3), nn.Threshold(1e9, 0.0), dense(3, 2), dtype=dtype, generator=seeded())


@pytest.mark.parametrize(("prior", "dtype"), [("absolute", torch.float32), ("relative", D)])
def test_an_output_without_a_gradient_is_left_where_it_is(prior, dtype):
    """v = 0, and 0 / 0 is no shift: but for a ridge regression's pull the first weights remain."""
    means = []
    for steps in (1, STEPS):
        net = dead(dtype)
        fit(net, noise(), X.to(dtype), Y.to(dtype), rule=Bali(prior=prior), steps=steps)
        assert bool((regressions(net)[0].mean_square == 0).all())
        means.append(regressions(net)[0].mean)
    first, last = means
    assert float((last - first).norm() / first.norm()) < 0.1


def test_a_layer_that_dies_keeps_its_prior():
    """Without any gradient v stays; else it would go to zero, and the prior's strength to infinity."""
    net = model()
    fit(net, noise())
    layer = LayerRegression(next(own for own in net.layers if own.has_weights), net.replicas, False)
    before, rate = layer.posterior.mean_square, torch.tensor(0.2, dtype=D)
    assert torch.equal(layer.scale(torch.zeros_like(before), rate), before)
    some = torch.zeros_like(before)
    some[..., 0] = 1.0
    assert torch.equal(layer.scale(some, rate), torch.lerp(before, some, rate))


REFUSED = {
    "another posterior": (
        lambda: model(posterior=(gilib.posteriors.Conjugate(), gilib.FromPrior())),
        r"BALI trains layers with gilib\.posteriors\.Conjugate, but Linear\(4 → 2\) has FromPrior",
    ),
    "parameters": (lambda: model(prior=gilib.NealPrior(learn=True)), r"layers\.layers\.0\.hyperparameters\."),
    "hyper-parameters": (
        lambda: network(dense(2, 2, prior=RandomScale())),
        r"Linear\(2 → 2\): BALI takes priors without hyper-parameters to infer",
    ),
    "nothing": (lambda: network(nn.Identity()), r"the network has"),
    "a layer without statistics": (
        lambda: network(OwnLayer(2, 2, gilib.posteriors.Conjugate())),
        r"OwnLayer\(2 → 2\): BALI has statistics for Linear, Conv2d, not for OwnLayer",
    ),
    "an activation at the end": (
        lambda: network(dense(2, 2), nn.Tanh()),
        "must give the outputs of the network: .* without an activation after it",
    ),
    "residual end": (
        lambda: network(gilib.Residual([dense(2, 2)])),
        "must give the outputs of the network: end with it, outside of residual blocks",
    ),
}


class RandomScale(gilib.NealPrior):
    """Draws its scale."""

    def build(self, site, like):
        module = super().build(site, like)
        module.noise_size = 1
        return module


class OwnLayer(gilib.Linear):
    """Might do anything with its inputs."""


test_networks_that_it_does_not_serve = refusals(
    {name: (lambda build=build: fit(build(), noise()), message) for name, (build, message) in REFUSED.items()}
)


def test_problems_that_it_does_not_serve():
    with pytest.raises(ValueError, match=r"likelihood has it fixed: use Gaussian\(learn=True\)"):
        fit(model(), gilib.Gaussian(0.1))
    with pytest.raises(ValueError, match=r"use Gaussian\(learn=True, replicas=\(2,\)\), got replicas=\(\)"):
        fit(model(replicas=(2,)), noise())
    for learn in (True, False):
        with pytest.raises(ValueError, match=r"use CorrelatedGaussian\(2, learn=True\)"):
            fit(model(), gilib.likelihoods.PerOutputGaussian([1.0, 1.0], learn=learn))
    for frozen in (noise(), gilib.likelihoods.CorrelatedGaussian(2, learn=True)):
        with pytest.raises(ValueError, match=r"fixed: use (Correlated)?Gaussian\(.*leave its requires_grad"):
            fit(model(), frozen.requires_grad_(False))
    with pytest.raises(ValueError, match="Bali has no Kullback-Leibler term to weight: leave kl_weight"):
        fit(model(), noise(), kl_weight=lambda step: 0.5)
    with pytest.raises(ValueError, match="use arithmetic='full', got 'bfloat16'"):
        fit(model(dtype=torch.float32), noise(), X.float(), Y.float(), speed=Speed(arithmetic="bfloat16"))


def test_small_batches_are_warned_of():
    with pytest.warns(UserWarning, match="regressions of 20 points.*batch_size of 1000, or all points"):
        fit(model(), noise(), batch_size=20, steps=2)
