"""BALI against a plain implementation of the paper: averaged statistics, direct formulas, App. G."""

import math

import pytest
import torch
from torch import nn

import gilib
from gilib.training import Bali, Checkpoint, CosineDecay, ExponentialDecay, Paused, Speed
from gilib.training.batches import Minibatches
from tests.support import D, assert_equal, normals, seeded

N, B, STEPS, SEED = 120, 105, 12, 3
ALPHA, BETA, V0 = 0.3, 0.2, 3.0
X = normals(N, 2, seed=1)
Y = torch.stack([X.sum(1).sin(), X[:, 0] * X[:, 1]], 1) + 0.1 * normals(N, 2, seed=2)
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


def model(outputs=2, hidden=(5, 4), **settings):
    settings = {"posterior": gilib.Conjugate(), "dtype": D} | settings
    prior = gilib.NealPrior(math.sqrt(V0))
    return gilib.models.mlp(2, hidden, outputs, prior=prior, activation=nn.Tanh, **settings)


def noise(replicas=()):
    return gilib.Gaussian(1.0, learn=True, replicas=replicas)


def fit(net, likelihood, x=X, y=Y, *, steps=STEPS, rule=Bali(), **settings):  # noqa: B008
    settings = {"num_samples": 1, "seed": SEED, "progress": False} | settings
    return gilib.fit(net, likelihood, x, y, steps=steps, rule=rule, **settings)


def regressions(net):
    return [layer.weights for layer in net.layers if layer.has_weights]


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
    batches = Minibatches(X, Y if regression else LABELS, -2, batch_size, SEED + 1)
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
    """Twelve steps, three layers, minibatches: means, covariances, scales and noise.

    Direct formulas subtract: at condition numbers of 1e4 and residuals of 1e-2 of the targets they keep nine
    digits of Σ.
    """
    kind, prior, settings, samples, batch_size = CASES[case]
    rule = Bali(ALPHA, **{"update_rate": BETA, "prior": prior} | settings)
    layers, variance = plain_training(kind, prior, rule, samples, batch_size)
    regression = kind == "gaussian"
    likelihood = noise() if regression else gilib.Categorical()
    net, y = model(2 if regression else 3), Y if regression else LABELS
    fit(net, likelihood, X, y, rule=rule, num_samples=samples, batch_size=batch_size)
    for own, plain in zip(regressions(net), layers, strict=True):
        assert_equal(own.mean, plain.mean, 1e-9)
        assert_equal(own.precision.tril(), plain.precision.tril(), 1e-9)
        assert_equal(own.noise_covariance, plain.sigma, 1e-9)
        assert_equal(own.mean_square, plain.v / plain.unbiased, 1e-9)
        assert int(own.steps) == STEPS and float(own.df) == plain.df + N
    if regression:
        assert_equal(likelihood.noise_variance.detach(), variance, 1e-9)


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_one_layer_is_conjugate_regression(rate):
    """Full batch, true targets: in closed form from the first step on, whatever β."""
    net, likelihood = model(2, ()), noise()
    fit(net, likelihood, steps=3, rule=Bali(update_rate=rate, prior="relative"))
    features, own = with_ones(X), regressions(net)[0]
    precision = torch.eye(3, dtype=D) / V0 + features.mT @ features
    mean = torch.linalg.solve(precision, features.mT @ Y)
    left = Y - features @ mean
    scale = 2e-3 * torch.eye(2, dtype=D) + left.mT @ left + mean.mT @ mean / V0
    assert_equal(own.mean, mean, 1e-10)
    assert_equal(own.scale_tril @ own.scale_tril.mT, scale, 1e-10)
    assert_equal(own.noise_covariance, scale / (3 + N + 2 + 1), 1e-10)
    assert_equal(likelihood.noise_variance.detach(), own.noise_covariance.diagonal().mean(), 1e-10)


def test_the_trace_is_the_elbo_before_the_step():
    net, likelihood = model(), noise()
    fit(net, likelihood, steps=4)
    again, other = model(), noise()
    again.load_state_dict(net.state_dict()), other.load_state_dict(likelihood.state_dict())
    history = fit(net, likelihood, steps=1, num_samples=3, seed=8)
    expected = gilib.elbo(again.draw(3, generator=seeded(8)), other, X, Y, num_data=N, per_point=True)
    assert_equal(history.elbo[0], expected.detach(), 1e-10)


def test_outputs_sampled_in_place_of_weights():
    """BALI-L: the same fit, from noise of other shape; deterministic steps do not tell the two apart."""
    nets = {face: model() for face in ("draw", "pointwise")}
    for face, net in nets.items():
        fit(net, noise(), estimator=face, steps=150)
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


def test_deterministic_steps_end_at_the_map():
    """The fixed point of prior="absolute": the slope of log P(y | W) balances that of N(0, v₀ / I).

    But for a factor √(v_o / mean v) of output o: pseudo-targets are scaled by output, the prior by layer.
    """
    net, rule = model(3, (3,)), Bali(1.0, 0.5, deterministic=True, schedule=None)
    fit(net, gilib.Categorical(), X, LABELS, steps=600, rule=rule)
    layers = regressions(net)
    weights = [(own.mean / own.root_fan_in).requires_grad_() for own in layers]
    f = X
    for k, w in enumerate(weights):
        f = torch.cat([torch.tanh(f) if k else f, torch.ones(N, 1, dtype=D)], 1) @ w
    log_likelihood = gilib.Categorical().log_prob(f[None], LABELS).sum()
    slopes = torch.autograd.grad(log_likelihood, weights)
    for own, w, slope in zip(layers, weights, slopes, strict=True):
        factor = (own.mean_square / own.mean_square.mean()).sqrt()
        pull = factor * w.detach() * len(w) / V0
        assert float((slope - pull).norm() / pull.norm()) < 1e-3  # 2e-5 after 600 steps, and falling


@pytest.mark.parametrize("name", ["yacht", "boston"])
@pytest.mark.parametrize("prior", ["absolute", "relative"])
def test_it_does_not_collapse_to_a_constant(name, prior):
    """On data that a constant explains with an error of 1."""
    split = gilib.data.load_uci(name).split(0)
    x, y = split.train_x.float(), split.train_y.float()
    net = gilib.models.mlp(
        x.shape[1], (50,), 1, posterior=gilib.Conjugate(), prior=gilib.NealPrior(math.sqrt(V0))
    )
    likelihood = noise()
    fit(net, likelihood, x, y, steps=300, rule=Bali(prior=prior))
    mean = net.draw(50, generator=seeded())(split.test_x.float()).mean(0)
    error = (mean - split.test_y).square().mean().sqrt()
    assert float(error) < 0.5 * float(split.test_y.std())
    assert float(likelihood.noise_variance.detach()) < 0.25


def in_both_precisions(start, likelihoods, targets, rule):
    """Outputs after 500 steps from one state, without noise: in float64 and in float32."""
    for likelihood, dtype in zip(likelihoods, (torch.float64, torch.float32), strict=True):
        net, y = start(dtype), targets.to(dtype) if targets.is_floating_point() else targets
        fit(net, likelihood, X.to(dtype), y, steps=500, rule=rule)
        still = torch.zeros(1, net.layers.noise_size, dtype=dtype)
        yield net.draw(noise=still)(X.to(dtype))[0].double()


def test_single_precision_follows_double_precision():
    """500 steps: where the log likelihood is concave, they end together.

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


def test_single_precision_trains_as_well():
    """A deep network's steps do not contract, and rounding grows until other functions fit as well."""
    noises = [noise(), noise()]
    fits = in_both_precisions(lambda dtype: model(2, (20,), dtype=dtype), noises, Y, Bali())
    errors = [float((outputs - Y).square().mean()) for outputs in fits]
    assert all(error < 0.1 * float(Y.var()) for error in errors)
    assert all(float(own.noise_variance.detach()) < 0.1 for own in noises)


@pytest.mark.parametrize("replicas", [(), (2,)])
def test_it_resumes_to_the_last_bit(replicas, tmp_path):
    settings = {"seed": [7, 1] if replicas else 3, "batch_size": B, "steps": 7}

    def start():
        return model(replicas=replicas), noise(replicas)

    whole, parts = start(), start()
    expected = fit(*whole, **settings)
    path, pauses = tmp_path / "checkpoint", 0
    while True:
        try:
            history = fit(*parts, checkpoint=Checkpoint(path, deadline=0.0), **settings)
            break
        except Paused:
            pauses, parts = pauses + 1, start()
    assert pauses == 6 and torch.equal(history.elbo, expected.elbo)
    for one, other in zip(whole, parts, strict=True):
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_a_schedule_goes_on_over_its_own_steps_only(tmp_path):
    path = tmp_path / "checkpoint"
    fit(model(), noise(), checkpoint=path)
    with pytest.raises(
        gilib.CheckpointError, match="CosineDecay.* over 12 of them, and cannot go on over 20"
    ):
        fit(model(), noise(), checkpoint=path, steps=20)
    path, free = tmp_path / "other", Bali(schedule=ExponentialDecay(0.5, 10))
    fit(model(), noise(), checkpoint=path, rule=free)
    assert fit(model(), noise(), checkpoint=path, steps=20, rule=free).resumed_at == 12


def test_a_second_training_continues_the_averages():
    net, likelihood = model(), noise()
    fit(net, likelihood, rule=Bali(schedule=None))
    before = [own.mean.clone() for own in regressions(net)]
    fit(net, likelihood, steps=1, rule=Bali(1e-9, update_rate=1e-6, schedule=None))
    for own, mean in zip(regressions(net), before, strict=True):
        assert int(own.steps) == STEPS + 1
        assert float((own.mean - mean).norm() / mean.norm()) < 0.5  # γ = 1 / 13, not 1


def test_replicas_train_as_they_would_alone():
    x = torch.stack([X, X + 0.1])
    together, likelihood = model(replicas=(2,)), noise((2,))
    history = fit(together, likelihood, x, Y, seed=[7, 1], batch_size=B)
    for r, seed in enumerate((7, 1)):
        alone, own = model(), noise()
        assert_equal(history.elbo[:, r], fit(alone, own, x[r], Y, seed=seed, batch_size=B).elbo, 1e-9)
        for one, other in zip(regressions(together), regressions(alone), strict=True):
            assert_equal(one.mean[r], other.mean, 1e-9)
        assert_equal(likelihood.noise_variance.detach()[r], own.noise_variance.detach(), 1e-9)


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


def test_gradients_that_are_not_finite_are_reported():
    """At once, before the state has changed, with the layer."""
    y, net = Y.clone(), model()
    y[0] = 1e200
    with pytest.raises(
        gilib.FactorisationError, match=r"Linear\(2 → 5\): .* training has diverged; lower the"
    ):
        fit(net, noise(), X, y)
    assert all(int(own.steps) == 0 and bool((own.mean == 0).all()) for own in regressions(net))


def test_an_output_without_a_gradient_is_left_where_it_is():
    """All units of the layer below are dead: v = 0, and 0 / 0 is no shift."""
    net = gilib.Network(
        None,
        [
            gilib.Linear(2, 3, gilib.Conjugate()),
            nn.Threshold(1e9, 0.0),
            gilib.Linear(3, 2, gilib.Conjugate()),
        ],
        dtype=D,
    )
    fit(net, noise(), rule=Bali(prior="relative"))
    assert bool((regressions(net)[0].mean_square == 0).all())
    assert all(bool(own.mean.isfinite().all()) for own in regressions(net))


@pytest.mark.parametrize("value", [0.0, -0.1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["lr", "update_rate"])
def test_settings_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a positive finite number"):
        Bali(**{name: value})


def test_settings_that_make_no_sense():
    with pytest.raises(ValueError, match=r"update_rate is at most 1, no memory at all, got 1\.5"):
        Bali(update_rate=1.5)
    with pytest.raises(ValueError, match="unknown prior 'flat': choose one of 'absolute', 'relative'"):
        Bali(prior="flat")
    with pytest.raises(TypeError, match="schedule must be"):
        Bali(schedule=0.5)
    for settings in ({"start": 1.0}, {"last": -0.1}):
        with pytest.raises(ValueError, match="must be a number of at least 0 and below 1"):
            CosineDecay(**settings)


def test_labels_out_of_range():
    with pytest.raises(ValueError, match=r"class labels must lie in 0 \.\.\. 1 .* got 0 \.\.\. 2"):
        fit(model(2), gilib.Categorical(), X, LABELS)


REFUSED = {
    "another posterior": (
        lambda: model(posterior=(gilib.Conjugate(), gilib.FromPrior())),
        r"BALI trains layers with gilib\.Conjugate, Linear\(4 → 2\) has FromPrior",
    ),
    "parameters": (
        lambda: model(posterior=(gilib.Conjugate(), gilib.Factorised())),
        r"would leave layers\.layers\.4\.weights\.scaled_mean, .*log_variance as they are",
    ),
    "hyper-parameters": (
        lambda: gilib.Network(None, [gilib.Linear(2, 2, gilib.Conjugate(), RandomScale())], dtype=D),
        r"Linear\(2 → 2\): BALI takes priors without hyper-parameters to infer",
    ),
    "nothing": (
        lambda: gilib.Network(None, [nn.Identity()], input_shape=(2,), dtype=D),
        r"the network has none: build it with posterior=gilib\.Conjugate\(\)",
    ),
    "residual end": (
        lambda: gilib.Network(None, [gilib.Residual([gilib.Linear(2, 2, gilib.Conjugate())])], dtype=D),
        "must give the outputs of the network: end with it, outside of residual blocks",
    ),
}


class RandomScale(gilib.NealPrior):
    """Draws its scale."""

    def build(self, site, like):
        module = super().build(site, like)
        module.noise_size = 1
        return module


@pytest.mark.parametrize("case", REFUSED)
def test_networks_that_it_does_not_serve(case):
    build, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        fit(build(), noise())


def test_problems_that_it_does_not_serve():
    with pytest.raises(ValueError, match=r"likelihood has it fixed: use Gaussian\(learn=True\)"):
        fit(model(), gilib.Gaussian(0.1))
    with pytest.raises(ValueError, match=r"use Gaussian\(learn=True, replicas=\(2,\)\), got replicas=\(\)"):
        fit(model(replicas=(2,)), noise())
    with pytest.raises(ValueError, match="leave kl_weight out"):
        fit(model(), noise(), kl_weight=lambda step: 0.5)
    with pytest.raises(ValueError, match="use arithmetic='full', got 'bfloat16'"):
        fit(model(dtype=torch.float32), noise(), X.float(), Y.float(), speed=Speed(arithmetic="bfloat16"))


def test_small_batches_are_warned_of():
    with pytest.warns(UserWarning, match="regressions of 20 points.*batch_size of 1000, or all points"):
        fit(model(), noise(), batch_size=20, steps=2)


def test_a_residual_block_inside_is_served(recwarn):
    """Its layers are regressions like all others; a full batch of few points is no reason to warn."""
    layers = [
        gilib.Linear(2, 4, gilib.Conjugate()),
        gilib.Residual([nn.Tanh(), gilib.Linear(4, 4, gilib.Conjugate())]),
        nn.Tanh(),
        gilib.Linear(4, 2, gilib.Conjugate()),
    ]
    net = gilib.Network(None, layers, dtype=D)
    fit(net, noise(), X[:50], Y[:50], steps=100)
    mean = net.draw(50, generator=seeded())(X[:50]).mean(0)
    assert float((mean - Y[:50]).square().mean()) < 0.3 * float(Y.var())
    assert not recwarn.list
