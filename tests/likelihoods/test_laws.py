"""What holds for every likelihood: densities, expectations, predictions, samples, replicas, refusals."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, TransformedDistribution, VonMises

import gilib
from gilib.config import describe, rebuild
from gilib.likelihoods import (
    Beta,
    Categorical,
    CorrelatedGaussian,
    Gamma,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    NegativeBinomial,
    PerOutputGaussian,
    Poisson,
    StudentT,
)
from gilib.likelihoods.mixtures import MixturePrediction
from gilib.linalg import FactorisationError
from tests.support import D, assert_equal, normals, seeded

S, R, N = 5, 3, 4
Y, LABELS = normals(N, 2, seed=1), torch.tensor([2, 0, 1, 1])
COVARIANCE, VARIANCES = torch.tensor([[2.0, 0.5], [0.5, 0.6]], dtype=D), [0.3, 2.0]


def columns(*values):
    """Targets of two outputs, `[N, 2]`."""
    one = torch.tensor(values)
    return torch.stack([one, one.roll(1)], -1)


def correlated(**settings):
    own = CorrelatedGaussian(2, learn=True, **settings)
    own.set_noise(COVARIANCE.expand_as(own.log_root))
    return own


def beta(f):
    return scipy.stats.beta(3.0 / (1.0 + 3.0 * np.exp(-f)), 3.0 - 3.0 / (1.0 + 3.0 * np.exp(-f)))


COUNTS = columns(0, 3, 1, 12)
DISTRIBUTIONS = {  # how it is made, targets, and the law of scipy given outputs `[S, N, 2]`
    "student": (lambda **own: StudentT(0.7, 3.5, **own), 3.0 * Y, lambda f: scipy.stats.t(3.5, f, 0.7)),
    "poisson": (lambda **_: Poisson(2.5), COUNTS, lambda f: scipy.stats.poisson(2.5 * np.exp(f))),
    "negative_binomial": (
        lambda **own: NegativeBinomial(2.5, 0.8, **own),
        COUNTS,
        lambda f: scipy.stats.nbinom(0.8, 0.8 / (0.8 + 2.5 * np.exp(f))),
    ),
    "gamma": (
        lambda **own: Gamma(2.5, 0.8, **own),
        columns(0.1, 2.0, 7.0, 0.5).double(),
        lambda f: scipy.stats.gamma(0.8, scale=2.5 * np.exp(f) / 0.8),
    ),
    "beta": (lambda **own: Beta(0.25, 3.0, **own), columns(0.01, 0.5, 0.97, 0.3).double(), beta),
}
GAUSSIANS = {
    "gaussian": (
        lambda **own: gilib.Gaussian(0.07, learn=True, scale=10.0, **own),
        Y,
        lambda f: scipy.stats.norm(f, np.sqrt(0.07)),
    ),
    "per output": (
        lambda **own: PerOutputGaussian(VARIANCES, learn=True, **own),
        Y,
        lambda f: scipy.stats.norm(f, np.sqrt(VARIANCES)),
    ),
    "heteroscedastic": (
        lambda **own: HeteroscedasticGaussian(VARIANCES, **own),
        Y,
        lambda f: scipy.stats.norm(f[..., :2], np.sqrt(VARIANCES * np.exp(f[..., 2:]))),
    ),
}
JOINT = {  # with the score itself: an output by itself has none
    "correlated": (correlated, Y, lambda f: MultivariateNormal(f, COVARIANCE).log_prob(Y)),
    "categorical": (
        lambda **_: gilib.Categorical(),
        LABELS,
        lambda f: scipy.special.log_softmax(f, -1)[..., range(N), LABELS],
    ),
}
CASES = DISTRIBUTIONS | GAUSSIANS | JOINT
EVERY = pytest.mark.parametrize("name", CASES)
OWN_NOISE = [name for name in CASES if name not in ("poisson", "categorical")]
UNIVARIATE = pytest.mark.parametrize("name", DISTRIBUTIONS | GAUSSIANS)


def outputs_of(name, *lead):
    """Outputs of a network, `[*lead, N, O]`; those for classes are large."""
    width = {"heteroscedastic": 4, "categorical": 3}.get(name, 2)
    return (100.0 if name == "categorical" else 0.6) * normals(*lead, N, width)


def score(name, outputs):
    """The log density, or the log probability, of all outputs of a point."""
    _, targets, law = CASES[name]
    if name in JOINT:
        return law(outputs)
    dist = law(outputs.numpy())
    return (dist.logpmf if hasattr(dist.dist, "pmf") else dist.logpdf)(targets.numpy()).sum(-1)


@EVERY
def test_densities(name):
    """In either dtype; every parameter gets a gradient."""
    (make, targets, _), outputs = CASES[name], outputs_of(name, 3)
    likelihood = make()
    found = likelihood.log_prob(outputs, targets)
    assert found.shape == (3, N)
    assert_equal(found.detach(), score(name, outputs), 1e-10)
    for parameter in likelihood.parameters():
        assert bool((torch.autograd.grad(found.sum(), parameter, retain_graph=True)[0] != 0).any())
    single = likelihood.log_prob(outputs.float(), targets.float() if targets.is_floating_point() else targets)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), found, rtol=1e-4, atol=1e-4)


class Functions:
    """Outputs with Gaussian marginals, as those of a process; one sample of them."""

    def __init__(self, mean, variance):
        self.mean, self.variance = mean, variance

    def marginals(self, x):
        return gilib.draws.Moments(self.mean, self.variance)

    moments = marginals

    def __call__(self, x):
        return 1.1 * self.mean


@EVERY
def test_the_expectation_is_an_integral(name):
    """Over a grid of Gauss and Hermite's nodes, in closed form or by fewer nodes; else of one sample."""
    (make, targets, _), mean, sd = CASES[name], outputs_of(name, 1), 0.7
    likelihood = make()
    found = likelihood.expected_log_prob(Functions(mean, torch.full_like(mean, sd**2)), None, targets)
    if name in JOINT:
        assert torch.equal(found, likelihood.log_prob(1.1 * mean, targets))
        return
    axes = mean.shape[-1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60 if axes == 2 else 14)
    grid = np.stack(np.meshgrid(*[nodes] * axes, indexing="ij"), -1).reshape(-1, 1, axes)
    weights = np.stack(np.meshgrid(*[weights / weights.sum()] * axes, indexing="ij"), -1).prod(-1).flatten()
    expected = weights @ score(name, mean + sd * torch.from_numpy(grid))
    assert_equal(found[0].detach(), expected, 1e-9 if name in GAUSSIANS else 1e-5)
    sampled = likelihood.expected_log_prob(Functions(mean, None), None, targets)
    assert torch.equal(sampled, likelihood.log_prob(mean, targets))


@UNIVARIATE
def test_predictions(name):
    """Mean, deviation, density and quantiles of the mixture; counts: the least that reach a probability."""
    (make, targets, law), outputs = CASES[name], outputs_of(name, S)
    likelihood = make().requires_grad_(False)
    found, parts = likelihood.predictive(outputs), law(outputs.numpy())
    assert_equal(found.mean, parts.mean().mean(0), 1e-10)
    assert_equal(found.sd, np.sqrt(parts.var().mean(0) + parts.mean().var(0)), 1e-10)
    assert_equal(found.log_prob(targets), np.log(np.exp(score(name, outputs)).mean(0)), 1e-10)
    for probability in (1e-3, 0.05, 0.5, 0.95, 0.999):
        at = found.quantile(probability).numpy()
        if likelihood.support.is_discrete:
            assert (parts.cdf(at).mean(0) >= probability).all()
            assert (parts.cdf(at - 1).mean(0) < probability).all()
        else:
            reached = torch.from_numpy(parts.cdf(at).mean(0))
            assert_equal(reached, torch.full((N, 2), probability, dtype=D), 1e-10)


@UNIVARIATE
def test_samples(name):
    """Their mean is the distribution's, within six standard errors; the global random state is left alone."""
    (make, _, law), outputs, count = CASES[name], outputs_of(name), 20000
    likelihood, before = make(), torch.get_rng_state()
    found = likelihood.sample(outputs.expand(count, *outputs.shape), seeded(1)).detach()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found, likelihood.sample(outputs.expand(count, *outputs.shape), seeded(1)))
    parts = law(outputs.numpy())
    gap = np.abs(found.mean(0).numpy() - parts.mean())
    assert (gap <= 6.0 * parts.std() / np.sqrt(count)).all()
    assert bool(likelihood.support.check(found).all())


@EVERY
@torch.no_grad()
def test_parameters_of_every_replica(name):
    """With others for one replica it is another likelihood there; of an ensemble, too."""
    (make, targets, _), outputs = CASES[name], outputs_of(name, S, 2)
    several, single = make(replicas=(2,)), make()
    for parameter in several.parameters():
        parameter[1] += 0.3
    together, predicted, parts = several.log_prob(outputs, targets), several.predictive(outputs), []
    for r in range(2):
        for parameter in single.parameters():
            parameter += 0.3 * r
        assert_equal(together[:, r], single.log_prob(outputs[:, r], targets), 1e-12)
        alone = single.predictive(outputs[:, r])
        assert_equal(predicted.mean[r], alone.mean, 1e-12)
        parts.append(alone.log_prob(targets))
    assert_equal(predicted.log_prob(targets), torch.stack(parts), 1e-10)
    pooled = predicted.pooled(1).log_prob(targets)
    assert_equal(pooled, gilib.metrics.log_mean_exp(torch.stack(parts), 0), 1e-10)


@pytest.mark.parametrize("name", OWN_NOISE)
def test_noise_of_other_replicas_is_refused(name):
    """As many as there are samples, each sample would get its own."""
    (make, targets, _), outputs = CASES[name], outputs_of(name, S)
    likelihood = make(replicas=(S,))
    functions = Functions(outputs, outputs.square())
    for ask in (
        lambda: likelihood.log_prob(outputs, targets),
        lambda: likelihood.distribution(outputs),
        lambda: likelihood.predictive(outputs),
        lambda: likelihood.expected_log_prob(functions, None, targets),
    ):
        with pytest.raises(ValueError, match=r"has a noise for each of these, .* with replicas=\(\)"):
            ask()


@EVERY
def test_targets_belong_to_all_samples(name):
    """One set for all, or one for each replica; one for each sample is refused."""
    (make, targets, _), outputs = CASES[name], outputs_of(name, S, R)
    likelihood, kind = make().requires_grad_(False), "class labels" if name == "categorical" else "targets"
    for_all = likelihood.log_prob(outputs, targets)
    assert for_all.shape == (S, R, N)
    assert_equal(likelihood.log_prob(outputs, targets.expand(R, *targets.shape)), for_all, 1e-12)
    for lead in ((S,), (S, R), (S, 1), (2,)):
        with pytest.raises(ValueError, match=rf"{kind} have axes .* one for each replica, \[3\]"):
            likelihood.log_prob(outputs, targets.expand(*lead, *targets.shape))
    prediction = likelihood.predictive(outputs[:, 0])
    assert prediction.log_prob(targets).shape == (N,)
    for count in (S, S + 1):
        with pytest.raises(ValueError, match="before their points"):
            prediction.log_prob(targets.expand(count, *targets.shape))


@EVERY
@pytest.mark.parametrize("replicas", [(), (2,)])
def test_config_and_state_rebuild_a_likelihood(name, replicas):
    likelihood = CASES[name][0](replicas=replicas)
    copy = rebuild(describe(likelihood), gilib.likelihoods.Likelihood)
    copy.load_state_dict(likelihood.state_dict())
    assert copy.config() == likelihood.config()
    for a, b in zip(likelihood.buffers(), copy.buffers(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(likelihood.parameters(), copy.parameters(), strict=True):
        assert torch.equal(a, b) and a.requires_grad == b.requires_grad and a.dtype == b.dtype


@pytest.mark.parametrize(
    ("name", "wrong", "wanted"),
    [
        ("poisson", -1.0, "counts"),
        ("negative_binomial", 0.5, "counts"),
        ("gamma", 0.0, "positive numbers"),
        ("beta", 1.0, "proportions"),
        ("beta", 0.0, "proportions"),
    ],
)
def test_targets_that_cannot_be(name, wrong, wanted):
    """Refused before a training; of a prediction they have no density."""
    make, targets, _ = CASES[name]
    likelihood, targets = make().requires_grad_(False), targets.double().clone()
    targets[2, 0] = wrong
    wanted = f"wants {wanted}.* 1 of the targets are not: the first of these is {wrong:g}"
    with pytest.raises(ValueError, match=wanted):
        likelihood.check_targets(targets, N, 2)
    found = likelihood.predictive(outputs_of(name, 3)).log_prob(targets)
    assert found.isinf().tolist() == [False, False, True, False]


def trained(likelihood, x, y, **settings):
    given = {"inducing_points": x[::5], "dtype": D, "generator": seeded()}
    net = gilib.models.deep_gp(1, 1, 1, posterior=gilib.posteriors.FreeGaussian(), **given)
    return net, gilib.fit(net, likelihood, x, y, progress=False, **settings)


INPUTS = torch.linspace(-2, 2, 40, dtype=D)[:, None]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_it_trains(name):
    """On integers, too: the bound rises above that of the start, and replayed steps are those called."""
    make, targets, _ = CASES[name]
    kind = type(make())
    y = kind.for_targets(targets[:, :1]).sample(INPUTS.sin()[None], seeded(2))[0]
    y = y.long() if kind.support.is_discrete else y
    likelihood = kind.for_targets(y)
    rule = gilib.training.Adam(0.05)
    settings = {"steps": 40, "rule": rule, "batch_size": 10}
    called = trained(kind.for_targets(y), INPUTS, y, speed=gilib.training.Speed(replay=False), **settings)[1]
    net, history = trained(likelihood, INPUTS, y, **settings)
    assert torch.equal(history.elbo, called.elbo)
    assert history.elbo[-10:].mean() > history.elbo[:5].mean()
    found = gilib.predict(net, likelihood, INPUTS, 10, generator=seeded())
    assert bool(found.log_prob(y).isfinite().all())


def test_pseudo_outputs_start_at_targets_that_are_real_and_as_many_or_at_zero():
    assert PAIR.link(ROWS) is ROWS
    for likelihood, outputs in ((VARYING, 4), (OfPairs(), 2)):
        assert torch.equal(likelihood.link(ROWS), torch.zeros(6, outputs, dtype=D))
        likelihood.check_targets(torch.ones(6, 2, dtype=D), 6, outputs)


class Mixing(Likelihood):
    """The second number depends on both outputs; its parameter is in float64."""

    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Parameter(torch.ones(2, 2, dtype=D).triu())

    def distribution(self, outputs):
        return Normal(outputs @ self.mix, 1.0, validate_args=False)


class OfPairs(Mixing):
    support = torch.distributions.constraints.positive

    def distribution(self, outputs):
        return Independent(super().distribution(outputs), 1)


F, ROWS, SIX = normals(4, 6, 2), normals(6, 2, seed=1), torch.arange(6)[:, None]
WHOLE = torch.zeros(6, 2, dtype=torch.long)
PAIR = CorrelatedGaussian(2, learn=True)
VARYING = HeteroscedasticGaussian([0.3, 2.0])
ANGLES = MixturePrediction(Independent(VonMises(F, F.exp()), 1))
WITHOUT_MEAN = Independent(TransformedDistribution(Normal(F, 1.0), []), 1)
UNITS = gilib.data.Normalisation.fit(F[0], ROWS)
NARROW = gilib.models.mlp(2, (3,), 1, posterior=gilib.Factorised())


REFUSED = [
    (lambda: Gaussian(math.inf), ValueError, "noise_variance must be a positive finite number"),
    *[
        (lambda kind=kind: Gaussian(kind([0.1, 0.2])), ValueError, "got 2: gilib.likelihoods.PerOutput")
        for kind in (torch.tensor, tuple, np.array)
    ],
    (lambda: Categorical().set_noise(torch.eye(2)), TypeError, "Categorical has no Gaussian noise"),
    (lambda: rebuild({"type": "Binomial"}, Likelihood), ValueError, "unknown .*'Binomial': gilib knows Beta"),
    (lambda: PAIR.check_targets(normals(6, 3), 6, 3), ValueError, "is for a network with 2 outputs, got 3"),
    (lambda: PAIR.check_targets(ROWS[:4], 6, 2), ValueError, r"must have shape \[6, 2\]"),
    (lambda: PAIR.predictive(F).log_prob(ROWS[:4]), ValueError, r"\[6, 2\] .*outputs\), got \[4, 2\]"),
    (lambda: PAIR.set_noise(-torch.eye(2)), FactorisationError, "noise is not positive definite"),
    (lambda: CorrelatedGaussian(2).infers_noise(()), ValueError, "inferred here, but .* has it fixed"),
    (lambda: Gamma().predictive(F, UNITS), ValueError, "targets of Gamma cannot be scaled"),
    (lambda: StudentT([0.1, 0.2, 0.3]).log_prob(F, ROWS), ValueError, "a network with 3 outputs, got 2"),
    (lambda: StudentT(df=2.0), ValueError, "df must be above 2"),
    (lambda: Beta(1.0), ValueError, "mean must be a proportion"),
    (lambda: Poisson([]), ValueError, "got none"),
    (lambda: Poisson([1.0, 2.0]).log_prob(F[..., :1], SIX), ValueError, "Poisson .* 2 outputs, got 1"),
    (lambda: Poisson().predictive(F).quantile(1.0), ValueError, "one probability between 0 and 1"),
    (lambda: ANGLES.quantile(0.3), NotImplementedError, "VonMises .* `cdf`"),
    (lambda: ANGLES.cdf(F), NotImplementedError, "VonMises .* `cdf`"),
    (lambda: MixturePrediction(WITHOUT_MEAN), NotImplementedError, "TransformedDistribution .* `mean`"),
    (lambda: VARYING.log_prob(F, ROWS), ValueError, "a network with 4 outputs, got 2"),
    (lambda: VARYING.check_targets(ROWS[:3], 6, 4), ValueError, r"\[6, 2\] \(points, numbers in a target"),
    (lambda: Mixing().check_targets(ROWS, 6, 2), ValueError, "depends on several outputs: wrap .*"),
    (lambda: PAIR.log_prob(F, WHOLE), TypeError, "targets must be floating-point"),
    (lambda: gilib.predict(NARROW, VARYING, torch.zeros(3, 2)), ValueError, "4 outputs, got 1"),
    (lambda: PerOutputGaussian([]), ValueError, "must be a list with a variance"),
    (lambda: PerOutputGaussian([0.1]).log_prob(F, ROWS), ValueError, "a network with 1 outputs, got 2"),
    (lambda: PerOutputGaussian([0.3, 2.0]).log_prob(F, ROWS[:3]), ValueError, r"must have shape \[6, 2\]"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
