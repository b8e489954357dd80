"""Likelihoods of counts, positive numbers, proportions and outliers, against scipy."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

import gilib
from gilib.likelihoods import Beta, Gamma, NegativeBinomial, Poisson, StudentT
from tests.support import D, assert_equal, normals, seeded

COUNTS, POSITIVE = torch.tensor([[0], [3], [1], [12]]), torch.tensor([[0.1], [2.0], [7.0], [0.5]], dtype=D)
SHARES, REAL = (
    torch.tensor([[0.01], [0.5], [0.97], [0.3]], dtype=D),
    torch.tensor([[0.0], [9.0], [-1.0], [0.2]]),
)
CASES = {
    "student": (StudentT(0.7, 3.5), REAL, lambda f: scipy.stats.t(3.5, f, 0.7)),
    "poisson": (Poisson(2.5), COUNTS, lambda f: scipy.stats.poisson(2.5 * np.exp(f))),
    "negative_binomial": (
        NegativeBinomial(2.5, 0.8),
        COUNTS,
        lambda f: scipy.stats.nbinom(0.8, 0.8 / (0.8 + 2.5 * np.exp(f))),
    ),
    "gamma": (Gamma(2.5, 0.8), POSITIVE, lambda f: scipy.stats.gamma(0.8, scale=2.5 * np.exp(f) / 0.8)),
    "beta": (
        Beta(0.25, 3.0),
        SHARES,
        lambda f: scipy.stats.beta(3.0 / (1.0 + 3.0 * np.exp(-f)), 3.0 - 3.0 / (1.0 + 3.0 * np.exp(-f))),
    ),
}
EVERY = pytest.mark.parametrize("name", list(CASES))


def score(dist, targets):
    """The log density, or the log probability, of scipy."""
    return (dist.logpmf if hasattr(dist, "pmf") or hasattr(dist.dist, "pmf") else dist.logpdf)(targets)


@EVERY
def test_densities(name):
    likelihood, targets, dist = CASES[name]
    outputs = 0.6 * normals(3, 4, 1)
    expected = score(dist(outputs.numpy()), targets.numpy()).sum(-1)
    assert_equal(likelihood.log_prob(outputs, targets).detach(), expected, 1e-10)
    both = likelihood.log_prob(outputs.expand(3, 4, 2), targets.expand(4, 2))
    assert_equal(both.detach(), 2.0 * expected, 1e-10)


@EVERY
def test_predictions(name):
    """Mean, deviation, density and quantiles of the mixture; counts: the least that reach a probability."""
    likelihood, targets, dist = CASES[name]
    outputs = 0.6 * normals(5, 4, 1)
    with torch.no_grad():
        found = likelihood.predictive(outputs)
    parts = dist(outputs.numpy())
    assert_equal(found.mean, parts.mean().mean(0), 1e-10)
    assert_equal(found.sd, np.sqrt(parts.var().mean(0) + parts.mean().var(0)), 1e-10)
    assert_equal(
        found.log_prob(targets), np.log(np.exp(score(parts, targets.numpy())).mean(0)).sum(-1), 1e-10
    )
    for probability in (1e-3, 0.05, 0.5, 0.95, 0.999):
        at = found.quantile(probability).numpy()
        if likelihood.support.is_discrete:
            assert (parts.cdf(at).mean(0) >= probability).all()
            assert (parts.cdf(at - 1).mean(0) < probability).all()
        else:
            assert_equal(
                torch.from_numpy(parts.cdf(at).mean(0)), torch.full((4, 1), probability, dtype=D), 1e-10
            )


@EVERY
def test_the_expectation_is_an_integral(name):
    """Of outputs that are Gaussian, as those of a process, against the trapezoidal rule."""
    likelihood, targets, dist = CASES[name]
    mean, sd = 0.5 * normals(1, 4, 1), 0.7

    class Functions:
        def marginals(self, x):
            return gilib.draws.Moments(mean, torch.full_like(mean, sd**2))

    found = likelihood.expected_log_prob(Functions(), None, targets)
    at = np.linspace(-9.0, 9.0, 4001)[:, None, None]
    scores = score(dist(mean[0].numpy() + sd * at), targets.numpy())  # [4001, 4, 1]
    expected = scipy.integrate.trapezoid(scores * np.exp(-0.5 * at**2) / np.sqrt(2 * np.pi), at, axis=0)
    assert_equal(found[0].detach(), expected[:, 0], 1e-5)


@EVERY
def test_samples(name):
    """Their mean is the distribution's, within six standard errors; the global random state is left alone."""
    likelihood, _, dist = CASES[name]
    outputs, count = 0.5 * normals(4, 1), 20000
    before = torch.get_rng_state()
    found = likelihood.sample(outputs.expand(count, 4, 1), seeded(1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found, likelihood.sample(outputs.expand(count, 4, 1), seeded(1)))
    parts = dist(outputs.numpy())
    gap = np.abs(found.mean(0).numpy() - parts.mean())
    assert (gap <= 6.0 * parts.std() / np.sqrt(count)).all()
    assert bool(likelihood.support.check(found).all())


@EVERY
def test_parameters_of_every_replica(name):
    """With others for one replica it is another likelihood there; of an ensemble, too."""
    targets = CASES[name][1]
    kind = type(CASES[name][0])
    single = kind.for_targets(targets)
    several = kind.for_targets(targets, (2,)) if list(single.parameters()) else single
    with torch.no_grad():
        for parameter in several.parameters():
            parameter[1] += 0.3
        outputs = 0.5 * normals(3, 2, 4, 1)
        together = several.log_prob(outputs, targets)
        pooled = several.predictive(outputs).pooled(1)
        parts = []
        for r in range(2):
            for parameter in single.parameters():
                parameter += 0.3 * r
            parts.append(single.predictive(outputs[:, r]))
            assert_equal(together[:, r], single.log_prob(outputs[:, r], targets), 1e-12)
    means = torch.stack([part.mean for part in parts])
    assert_equal(pooled.mean, means.mean(0), 1e-12)
    ends, between = torch.stack([part.quantile(0.9) for part in parts]), pooled.quantile(0.9)
    assert bool(((ends.amin(0) <= between) & (between <= ends.amax(0))).all())


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
    likelihood, targets, _ = CASES[name]
    targets = targets.double().clone()
    targets[2] = wrong
    with pytest.raises(
        ValueError, match=f"wants {wanted}.* 1 of the targets are not: the first of these is {wrong:g}"
    ):
        likelihood.check_targets(targets, 4, 1)
    with torch.no_grad():
        found = likelihood.predictive(normals(3, 4, 1)).log_prob(targets)
    assert found.isinf().tolist() == [False, False, True, False]


def process(x):
    """A sparse one."""
    return gilib.models.deep_gp(
        1,
        1,
        1,
        posterior=gilib.posteriors.FreeGaussian(),
        inducing_points=x[::5],
        dtype=D,
        generator=seeded(),
    )


@EVERY
def test_it_trains(name):
    """A sparse process and a network, on integers, too: the bound rises above that of the start."""
    kind = type(CASES[name][0])
    x = torch.linspace(-2, 2, 40, dtype=D)[:, None]
    y = kind.for_targets(CASES[name][1]).sample(x.sin()[None].double(), seeded(2))[0]
    y = y.long() if kind.support.is_discrete else y
    net = process(x)
    likelihood = kind.for_targets(y)
    history = gilib.fit(
        net, likelihood, x, y, steps=40, rule=gilib.training.Adam(0.05), progress=False, batch_size=10
    )
    assert history.elbo[-10:].mean() > history.elbo[:5].mean()
    found = gilib.predict(net, likelihood, x, 10, generator=seeded())
    assert bool(found.log_prob(y).isfinite().all())


def test_counts_by_replay():
    """A recorded step is the step."""
    x = torch.linspace(-2, 2, 40, dtype=D)[:, None]
    y = Poisson(3.0).sample(x.sin()[None], seeded(2))[0]
    found = []
    for replay in (False, True):
        net = process(x)
        history = gilib.fit(
            net, Poisson(3.0), x, y, steps=30, progress=False, speed=gilib.training.Speed(replay=replay)
        )
        found.append(history.elbo)
    assert_equal(found[1], found[0], 1e-7)
