"""BALI against a plain implementation of the paper: averaged statistics, direct formulas, App. G."""

import copy
import math

import pytest
import torch
from torch import nn

import gilib
from gilib.layers.weights import WeightLayer
from gilib.regression.joint import Place
from gilib.training import Bali
from gilib.training.engine.minibatches import Minibatches
from gilib.training.gradients.objective import Objective
from gilib.training.rules.bali import RunningBali
from tests.support import D, assert_equal, layerwise, seeded
from tests.support.layerwise import LABELS, SEED, STEPS, V0, B, N, X, Y, dense, fit, model, noise, regressions


class Plain:
    """One layer: moving averages of sufficient statistics (Eq. 17), and direct formulas."""

    def __init__(self, inputs, outputs):
        self.inputs, self.outputs, self.df = inputs, outputs, outputs + 1.0
        self.xx, self.xy = torch.zeros(inputs, inputs, dtype=D), torch.zeros(inputs, outputs, dtype=D)
        self.yy, self.v = torch.zeros(outputs, outputs, dtype=D), torch.zeros(outputs, dtype=D)
        self.prior, self.mean, self.t = 0.0, torch.zeros(inputs, outputs, dtype=D), 0
        self.precision = torch.eye(inputs, dtype=D)
        self.sigma = torch.eye(outputs, dtype=D)

    def weights(self, e):
        """W̃, with the root T⁻ᵀ of V."""
        root = torch.linalg.inv(torch.linalg.cholesky(self.precision)).mT
        return self.mean + root @ e @ torch.linalg.cholesky(self.sigma).mT

    def square(self, gradient, beta):
        self.t += 1
        self.unbiased = 1 - (1 - beta) ** self.t
        self.v = (1 - beta) * self.v + beta * gradient.square().mean(0)
        return self.v / self.unbiased

    def update(self, x, y, kappa, beta):
        """V⁻¹, M, Ψ, and the mean once more by App. G."""
        old, before, c = self.mean, self.unbiased, N / len(x)
        self.xx = (1 - beta) * self.xx + beta * c * x.mT @ x
        self.xy = (1 - beta) * self.xy + beta * c * x.mT @ y
        self.yy = (1 - beta) * self.yy + beta * c * y.mT @ y
        self.prior = (1 - beta) * self.prior + beta * kappa / V0
        self.precision = self.prior / before * torch.eye(self.inputs, dtype=D) + self.xx / before
        self.mean = torch.linalg.solve(self.precision, self.xy / before)
        scale = 2e-3 * torch.eye(self.outputs, dtype=D) + self.yy / before
        scale = scale - self.mean.mT @ self.precision @ self.mean
        self.sigma = scale / (self.df + N + self.outputs + 1)
        slope = c * x.mT @ (y - x @ old) - kappa / V0 * old
        stepped = old + beta / before * torch.linalg.solve(self.precision, slope)
        assert_equal(stepped, self.mean, 1e-10)


def with_ones(x):
    """Features and a constant, over the root of their number."""
    return torch.cat([x, torch.ones_like(x[:, :1])], 1) / math.sqrt(x.shape[1] + 1)


def plain_training(likelihood, prior, rule, samples, batch_size):
    """The layers, and the noise variance, after STEPS steps with the engine's batches and noise."""
    regression = likelihood == "gaussian"
    widths = (2, 5, 4, 2 if regression else 3)
    layers = [Plain(i + 1, o) for i, o in zip(widths[:-1], widths[1:], strict=True)]
    sizes = [layer.inputs * layer.outputs for layer in layers]
    generator, variance = seeded(SEED), 1.0
    batches = Minibatches(X, Y if regression else LABELS, -2, -2 if regression else -1, batch_size, SEED + 1)
    for step in range(STEPS):
        x, y = batches.next()
        alpha = rule.lr * (1.0 if rule.schedule is None else rule.schedule(step, STEPS))
        draws = torch.randn(samples, sum(sizes), generator=generator, dtype=D)
        draws = draws * (1.0 if step == 0 or not rule.deterministic else 0.0)
        features, outputs, gradients = ([[] for _ in layers] for _ in range(3))
        for e in draws:
            weights = [
                layer.weights(part.reshape(layer.inputs, layer.outputs))
                for layer, part in zip(layers, e.split(sizes), strict=True)
            ]
            own, f = [], x
            for k, w in enumerate(weights):
                features[k].append(with_ones(f if k == 0 else torch.tanh(f)))
                f = features[k][-1] @ w
                own.append(f)
                outputs[k].append(f)
            if regression:
                g = (f - y) / variance
            else:
                g = torch.softmax(f, 1) - nn.functional.one_hot(y, 3)
            for k in reversed(range(len(layers))):
                gradients[k].append(g)
                if k:
                    back = g @ weights[k][:-1].mT / math.sqrt(layers[k].inputs)
                    g = back * (1 - torch.tanh(own[k - 1]) ** 2)
        for k, layer in enumerate(layers):
            xs, f, g = (torch.cat(values[k]) for values in (features, outputs, gradients))
            v = layer.square(g, rule.update_rate)
            true = regression and k == len(layers) - 1
            kappa = layer.sigma.diagonal().mean() if true else alpha / v.mean().sqrt()
            targets = y.repeat(samples, 1) if true else f - alpha * g / v.sqrt()
            weight = 1.0 if prior == "relative" else kappa
            # N / B of all rows: those of several samples count as one average
            layer.update(xs, targets, weight, rule.update_rate)
        variance = layers[-1].sigma.diagonal().mean() if regression else variance
    return layers, variance


CASES = {
    "regression, absolute": ("gaussian", "absolute", {}, 1, B),
    "regression, relative": ("gaussian", "relative", {"schedule": None}, 1, B),
    "classification": ("categorical", "absolute", {}, 1, B),
    "two draws": ("gaussian", "absolute", {}, 2, B),
    "the last batch alone": ("gaussian", "relative", {"update_rate": 1.0}, 1, None),
    "deterministic": ("categorical", "relative", {"deterministic": True}, 1, B),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_papers_algorithm(case):
    """Twelve steps of three layers; direct formulas subtract, and keep nine digits of Σ."""
    kind, prior, settings, samples, batch_size = CASES[case]
    rule = Bali(layerwise.ALPHA, **{"update_rate": layerwise.BETA, "prior": prior} | settings)
    layers, variance = plain_training(kind, prior, rule, samples, batch_size)
    regression = kind == "gaussian"
    likelihood = noise() if regression else gilib.Categorical()
    net, y = model(2 if regression else 3), Y if regression else LABELS
    fit(net, likelihood, X, y, rule=rule, num_samples=samples, batch_size=batch_size)
    for k, (own, plain) in enumerate(zip(regressions(net), layers, strict=True)):
        assert_equal(own.mean, plain.mean, 1e-9)
        assert_equal(own.precision.tril(), plain.precision.tril(), 1e-9)
        assert_equal(own.noise_covariance, plain.sigma, 1e-9)
        true_targets = regression and k == len(layers) - 1  # which need no gradients
        assert_equal(own.mean_square, 0.0 * plain.v if true_targets else plain.v / plain.unbiased, 1e-9)
        assert int(own.steps) == STEPS and float(own.df) == plain.df + N
    if regression:
        assert_equal(likelihood.noise_variance.detach(), variance, 1e-9)
    assert not X.requires_grad


CONJUGATE = gilib.posteriors.Conjugate()
BLOCKS = {
    "residual": [dense(2, 4), gilib.Residual([nn.Tanh(), dense(4, 4)]), dense(4, 3)],
    "images": [nn.Unflatten(-1, (2, 1, 1)), gilib.Conv2d(2, 3, 1, CONJUGATE), nn.Flatten(), dense(3, 3)],
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_residuals_at_the_draw_or_at_the_mean_train_alike(kind, monkeypatch):
    """The noise that is taken for a layer's is that of its draw, in every kind of network."""
    means, at_draw = [], RunningBali._places

    def at_mean(self, batch, *rest):
        first = self._is_first(batch)
        return at_draw(self, batch, *rest) if first else [Place(own.posterior.mean) for own in self.layers]

    for places in (at_draw, at_mean):
        monkeypatch.setattr(RunningBali, "_places", places)
        net = layerwise.network(*copy.deepcopy(BLOCKS[kind]))
        fit(net, gilib.Categorical(), X, LABELS, steps=5)
        means.append([own.weights.mean for own in net.modules() if isinstance(own, WeightLayer)])
    for found, expected in zip(*means, strict=True):
        assert_equal(found, expected, 1e-9)


def test_it_takes_one_draw_unless_told_otherwise(monkeypatch):
    """Where other rules take five."""
    counts, noise_of = [], Objective.noise
    monkeypatch.setattr(
        Objective, "noise", lambda self, *a: counts.append(self.num_samples) or noise_of(self, *a)
    )
    for rule in (Bali(), gilib.Adam()):
        prior = {} if isinstance(rule, Bali) else {"posterior": gilib.Factorised()}
        gilib.fit(model(**prior), noise(), X, Y, steps=1, rule=rule, progress=False)
    assert set(counts[:-1]) == {1} and counts[-1] == 5


def test_the_trace_is_the_elbo_before_the_step():
    net, likelihood = model(), noise()
    fit(net, likelihood, steps=4)
    again, other = model(), noise()
    again.load_state_dict(net.state_dict()), other.load_state_dict(likelihood.state_dict())
    history = fit(net, likelihood, steps=1, num_samples=3, seed=8)
    expected = gilib.elbo(again.draw(3, generator=seeded(8)), other, X, Y, num_data=N, per_point=True)
    assert_equal(history.elbo[0], expected.detach(), 1e-10)
