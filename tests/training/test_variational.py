"""VOGN, Vadam, noisy Adam and IVON: their steps written out, and what a rule owes."""

import math

import pytest
import torch
from torch import nn

import gilib
from gilib.training import IVON, VOGN, Batch, PiecewiseConstant, Vadam
from tests.support import D, assert_equal, normals, seeded, small_net, with_ones
from tests.support.variational import NOISE, RULES, X, Y, each_rule, fit, posteriors, problem

# Steps


def loss_of_example(weights, n):
    """-log N(y_n; f(x_n), σ²) of the network 2 → 3 → 2."""
    hidden = torch.tanh(with_ones(X[n : n + 1]) @ weights[0])
    return 0.5 * (Y[n] - with_ones(hidden) @ weights[1]).square().sum() / NOISE + math.log(
        2 * math.pi * NOISE
    )


def gradients_of_examples(weights):
    """Of every layer, `[N, I, O]`."""
    leaves = [own.clone().requires_grad_() for own in weights]
    every = [torch.autograd.grad(loss_of_example(leaves, n), leaves) for n in range(len(X))]
    return [torch.stack(own) for own in zip(*every, strict=True)]


def written_out(name, state, draws, moments, step, kappa):
    """One step of a rule for every layer, in the papers' own letters: s or h, without the prior."""
    alpha, beta1, beta2, num = 0.1, 0.8, 0.9, len(X) / kappa
    found = [gradients_of_examples([own[s] for own in draws]) for s in range(2)]
    after = []
    for k, (mu, precision) in enumerate(state):
        prior = float(mu.shape[0]) / num  # δ: the prior's variance is 1 / I
        single = torch.stack([found[s][k] for s in range(2)])  # [S, N, I, O]
        g, s = single.mean(1), precision / num - prior
        m, v = moments[k]
        pulled = {"noisy adam": prior * draws[k], "ivon": 0.0 * mu}.get(name, prior * mu)
        m = beta1 * m + (1 - beta1) * (g + pulled).mean(0)
        m_hat = m / (1 - beta1 ** (step + 1))
        if name == "ivon":
            h_hat = (g * (draws[k] - mu) * precision).mean(0)
            s_new = beta2 * s + (1 - beta2) * h_hat + 0.5 * (1 - beta2) ** 2 * (s - h_hat) ** 2 / (s + prior)
            mu = mu - alpha * (m_hat + prior * mu) / (s_new + prior)
        elif name == "vogn":
            s_new = beta2 * s + (1 - beta2) * single.square().mean((0, 1))
            mu = mu - alpha * m_hat / (s_new + prior)
        else:
            square = g.square().mean(0)
            s_new = beta2 * s + (1 - beta2) * square
            v = beta2 * v + (1 - beta2) * square
            root = (v / (1 - beta2 ** (step + 1))).sqrt()
            mu = mu - alpha * m_hat / (s_new + prior + 0.02 if name == "noisy adam" else root + prior)
        moments[k] = m, v
        after.append((mu, num * (s_new + prior)))
    return after


@pytest.mark.parametrize("kappa", [1.0, 0.5])
@pytest.mark.parametrize("name", RULES)
def test_three_steps_written_out(name, kappa):
    """Two layers, the gradient of every example by itself, the draws from the same normals."""
    net, stream = small_net(gilib.Factorised()), seeded()
    state = posteriors(net)
    fit(net, RULES[name], kl_weight=gilib.objectives.SteppedTempering(0, last=kappa))
    moments = [(torch.zeros_like(mu), torch.zeros_like(mu)) for mu, _ in state]
    for step in range(3):
        noise = torch.randn(2, 9 + 8, generator=stream, dtype=D).split([9, 8], -1)
        draws = [
            mu + precision.rsqrt() * own.unflatten(-1, mu.shape)
            for (mu, precision), own in zip(state, noise, strict=True)
        ]
        state = written_out(name, state, draws, moments, step, kappa)
    for (mu, precision), (own_mu, own_precision) in zip(posteriors(net), state, strict=True):
        assert_equal(mu, own_mu, 1e-10)
        assert_equal(precision, own_precision, 1e-10)


def test_learning_rates_follow_the_schedule():
    one, other = small_net(gilib.Factorised()), small_net(gilib.Factorised())
    start = posteriors(one)[0][0]
    fit(one, IVON(0.1, schedule=PiecewiseConstant((), (0.5,))), steps=1)
    fit(other, IVON(0.1), steps=1)
    assert_equal(posteriors(one)[0][0] - start, 0.5 * (posteriors(other)[0][0] - start), 1e-12)


@pytest.mark.parametrize("rule", [VOGN(), IVON()])
def test_shares_of_a_minibatch_add_up(rule):
    """What processes sum is of the whole minibatch."""
    net = small_net(gilib.Factorised())
    noise = gilib.randomness.Noise(normals(2, 17, seed=9), torch.zeros(2, 7, 0))
    running = rule.begin(problem(net, 7))
    whole = running.gradients(Batch(0, X, Y, noise))
    shares = (Batch(0, X[n], Y[n], noise, fraction=len(X[n]) / 7) for n in (slice(4), slice(4, 7)))
    parts = [running.gradients(share) for share in shares]
    assert_equal(parts[0][0] + parts[1][0], whole[0])
    for k, own in enumerate(whole[1]):
        assert_equal(parts[0][1][k].gradient + parts[1][1][k].gradient, own.gradient)
        assert len(own.statistics) == (rule == VOGN())
        for j, value in enumerate(own.statistics):
            assert_equal(parts[0][1][k].statistics[j] + parts[1][1][k].statistics[j], value)


@each_rule
def test_the_rest_is_trained_by_adam(rule):
    """At the draws from before the step, so the bound and the first step of the noise are Adam's own."""
    noise, other = gilib.Gaussian(NOISE, learn=True), gilib.Gaussian(NOISE, learn=True)
    history = fit(small_net(gilib.Factorised()), rule, likelihood=noise, steps=1)
    adam = fit(small_net(gilib.Factorised()), gilib.Adam(), likelihood=other, steps=1)
    assert_equal(history.elbo, adam.elbo, 1e-12)
    assert_equal(noise.noise_variance.detach(), other.noise_variance.detach(), 1e-12)


def test_convolutions_and_residual_blocks():
    """A layer's gradient is that of its own weights: as Adam's gradient of the mean has it."""
    layers = [
        gilib.Conv2d(1, 2, 3, gilib.Factorised()),
        nn.Flatten(),
        gilib.Residual([gilib.Linear(32, 32, gilib.Factorised()), nn.Tanh()]),
        gilib.Linear(32, 2, gilib.Factorised()),
    ]
    net = gilib.Network(None, layers, input_shape=(1, 4, 4), dtype=D)
    before = [mean for mean, _ in posteriors(net)]
    history = fit(net, IVON(), normals(7, 1, 4, 4, seed=8), steps=3)
    assert bool(history.elbo.isfinite().all())
    assert all(not torch.equal(old, mean) for old, (mean, _) in zip(before, posteriors(net), strict=True))


@each_rule
def test_layers_that_are_not_learned_stay(rule):
    net = small_net(gilib.Factorised())
    first, last = (layer for layer in net.modules() if isinstance(layer, gilib.Linear))
    first.requires_grad_(False)
    before = [p.detach().clone() for p in first.parameters()]
    start = last.weights.mean.detach().clone()
    fit(net, rule)
    assert all(torch.equal(p, old) for p, old in zip(first.parameters(), before, strict=True))
    assert not torch.equal(last.weights.mean, start)


def net(posterior=gilib.Factorised(), prior=None, **settings):  # noqa: B008
    return small_net(posterior, prior, **settings)


def refused(match, net, rule=IVON(), x=X, **settings):  # noqa: B008
    with pytest.raises(ValueError, match=match):
        fit(net, rule, x, **settings)


def test_networks_and_settings_that_do_not_fit():
    refused("has none that are learned: build it with posterior", net(gilib.PointEstimate()))
    refused("needs a prior of known variance", net(prior=gilib.ScalePrior()))
    refused("needs estimator='draw'", net(), estimator="pointwise")
    refused("cannot leave out a replica", net(replicas=(2,)), on_divergence="freeze")
    tempering = gilib.objectives.SteppedTempering(10)
    refused("divides by kl_weight, which is 0 at step 0", net(), kl_weight=tempering)
    layers = [gilib.Conv2d(1, 2, 3, gilib.Factorised()), nn.Flatten(), gilib.Linear(8, 2, gilib.Factorised())]
    images = gilib.Network(None, layers, input_shape=(1, 2, 2), dtype=D)
    wanted = r"VOGN needs gradients .* Conv2d\(1 → 2, 3 × 3\): use"
    refused(wanted, images, VOGN(), normals(7, 1, 2, 2))
    process = gilib.models.sparse_gp(2, 2, inducing_points=X, dtype=D)  # whatever it prefers
    refused("trains layers with Factorised weights, but the network has none", process, VOGN())


def test_divergence_is_an_error():
    """That of the last step, too, which no later bound shows."""
    for rule in (Vadam(1e308), IVON(1e308)):
        with pytest.raises(gilib.training.DivergenceError, match="not finite"):
            fit(net(), rule, y=1e3 * Y, steps=1)
    broken = small_net(gilib.Factorised())
    with torch.no_grad():
        next(broken.parameters())[0] = torch.nan  # no sign of another order of layers
    with pytest.raises(gilib.training.DivergenceError, match="not finite at step 0"):
        fit(broken, IVON(), steps=4)


def test_ivon_keeps_precisions_positive_whatever_it_sees():
    rule = IVON(betas=(0.9, 0.0))
    current = torch.tensor([1e-3, 1.0, 1e3], dtype=D)
    for target in (-1e6, -1.0, 0.0, 1e6):
        assert bool((rule.averaged(current, torch.full_like(current, target)) >= 0.5 * current).all())
