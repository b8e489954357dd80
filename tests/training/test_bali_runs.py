"""Trainings by BALI: on data, in both precisions, continued, of replicas that break down."""

import torch
from torch import nn

import gilib
from gilib.training import Bali
from tests.support import D, assert_equal, seeded
from tests.support.layerwise import LABELS, STEPS, X, Y, fit, model, noise, regressions


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


def in_both_precisions(start, likelihoods, targets, rule):
    """Outputs after 80 steps from one state, without noise: in float64 and in float32."""
    for likelihood, dtype in zip(likelihoods, (torch.float64, torch.float32), strict=True):
        net, y = start(dtype), targets.to(dtype) if targets.is_floating_point() else targets
        fit(net, likelihood, X.to(dtype), y, steps=80, rule=rule)
        still = torch.zeros(1, net.layers.noise_size, dtype=dtype)
        yield net.draw(noise=still)(X.to(dtype))[0].double()


def test_single_precision_follows_double_precision():
    """80 steps: where the log likelihood is concave, they end together.

    Rounding of 2⁻²⁴ at condition numbers of 1e3 is 6e-5 of an output a step; the steps contract.
    """
    began = model(3, ())
    fit(began, gilib.Categorical(), X, LABELS, steps=5)

    def start(dtype):
        net = model(3, (), dtype=dtype)
        net.load_state_dict(began.state_dict())
        return net

    rule = Bali(deterministic=True)
    exact, rounded = in_both_precisions(start, [gilib.Categorical()] * 2, LABELS, rule)
    assert float((exact - rounded).norm() / exact.norm()) < 1e-3


def test_inputs_of_rank_one_in_single_precision():
    """Gradients of hidden units have a small rank as well.

    In some directions nothing but the prior is left of their residual scatter, and rounding is larger.
    """
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


def test_a_replica_that_breaks_down_is_left_alone():
    """One whose targets have no finite squares."""
    y = torch.stack([Y, Y])
    y[1, 0] = 1e200
    net, likelihood = model(replicas=(2,)), noise((2,))
    history = fit(net, likelihood, X, y, on_divergence="freeze", seed=[3, 3])
    assert history.diverged_at.tolist() == [-1, 0]
    alone, own = model(), noise()
    fit(alone, own)
    for one, other in zip(regressions(net), regressions(alone), strict=True):
        assert_equal(one.mean[0], other.mean, 1e-9)
        assert one.steps.tolist() == [STEPS, 0] and bool((one.mean[1] == 0).all())


def test_a_residual_block_inside_is_served(recwarn):
    """Its layers are regressions like all others; a full batch of few points is no reason to warn."""
    layers = [
        gilib.Linear(2, 4, gilib.posteriors.Conjugate()),
        gilib.Residual([nn.Tanh(), gilib.Linear(4, 4, gilib.posteriors.Conjugate())]),
        nn.Tanh(),
        gilib.Linear(4, 2, gilib.posteriors.Conjugate()),
    ]
    net = gilib.Network(None, layers, dtype=D)
    fit(net, noise(), X[:50], Y[:50], steps=70)
    mean = net.draw(50, generator=seeded())(X[:50]).mean(0)
    assert float((mean - Y[:50]).square().mean()) < 0.3 * float(Y.var())
    assert not recwarn.list
