"""Ensembles of predictions of any kind, and mixtures with their quantiles against scipy."""

import math
from functools import cache

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats
import torch
from torch.distributions import Independent, Normal

import gilib
from gilib.likelihoods import CorrelatedGaussian, HeteroscedasticGaussian, NegativeBinomial, Poisson, StudentT
from gilib.prediction import CategoricalPrediction, EnsemblePrediction, GaussianPrediction
from gilib.sklearn.targets import LogNormalPrediction
from tests.support import D, assert_equal, normals, seeded, shaken, small_net

N = 5
X, Y = normals(N, 2), normals(N, 2, seed=1).abs()
UNITS = gilib.data.Normalisation.fit(X, 3.0 + 2.0 * Y)
GAUSSIAN = GaussianPrediction(2.0 * normals(4, N, 2, seed=2), 0.1 + normals(4, N, 2, seed=3).abs())


class Logistic:
    """What another package might return: it knows nothing of gilib."""

    def __init__(self, centre, scale):
        self.dist = scipy.stats.logistic(centre.numpy(), scale)
        self.mean, self.sd = torch.from_numpy(self.dist.mean()), torch.from_numpy(self.dist.std())

    def log_prob(self, targets):
        return torch.from_numpy(self.dist.logpdf(targets.numpy()).sum(-1))

    def cdf(self, values):
        return torch.from_numpy(self.dist.cdf(values.numpy()))

    def quantile(self, probability):
        return torch.from_numpy(self.dist.ppf(probability))


def predicted(net, likelihood=gilib.Gaussian(0.3), **settings):  # noqa: B008
    return gilib.predict(net, likelihood.to(D), X, 4, generator=seeded(1), **settings)


def student():
    net = gilib.models.mlp(2, (3,), 2, posterior=gilib.posteriors.Conjugate(), dtype=D, generator=seeded())
    for layer in net.layers:
        if layer.has_weights:
            layer.weights.df.fill_(9.0)
    return gilib.prediction.predict_student(net, X, 3, generator=seeded())


KINDS = {
    "network": lambda: predicted(small_net(gilib.Factorised())),
    "single precision": lambda: GaussianPrediction(GAUSSIAN.means.float(), GAUSSIAN.component_sd.float()),
    "exact process": lambda: predicted(shaken(gilib.models.sparse_gp(2, 2, inducing_points=X, dtype=D))),
    "replicas": lambda: predicted(gilib.Ensemble(small_net(gilib.GlobalInducing(), replicas=(3,)))),
    "student": student,
    "correlated noise": lambda: predicted(small_net(gilib.Factorised()), CorrelatedGaussian(2, 0.3)),
    "noise that varies": lambda: HeteroscedasticGaussian([0.1, 0.2]).predictive(normals(3, N, 4)),
    "own likelihood": lambda: predicted(small_net(gilib.Factorised()), StudentT(0.3)),
    "own units": lambda: predicted(small_net(gilib.Factorised()), StudentT(0.3), normalisation=UNITS),
    "positive numbers": lambda: gilib.likelihoods.Gamma(1.5).predictive(normals(3, N, 2)),
    "proportions": lambda: gilib.likelihoods.Beta(0.4, 9.0).predictive(0.3 * normals(3, N, 2)),
    "logarithms": lambda: LogNormalPrediction(0.3 * normals(4, N, 2), GAUSSIAN.component_sd),
    "ensemble": lambda: EnsemblePrediction([GAUSSIAN, Logistic(Y, 0.4)]),
    "another package": lambda: Logistic(Y, 0.7),
}


@cache
@torch.no_grad()
def kind(name):
    return KINDS[name]()


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_any_kind_of_prediction_is_mixed(name):
    """Half of the probability is the member's, half that of Gaussians; quantiles reach their probability.

    Outside of all targets, too, also of those for which torch and scipy give no number there.
    """
    own = kind(name)
    found = EnsemblePrediction([own, GAUSSIAN])
    both = [member.log_prob(0.9 * Y).double().numpy() for member in (own, GAUSSIAN)]
    assert_equal(found.log_prob(0.9 * Y), np.logaddexp(*both) - math.log(2.0), 1e-12)
    assert_equal(found.mean, 0.5 * (own.mean + GAUSSIAN.mean).double(), 1e-12)
    second = 0.5 * sum(each.sd.double() ** 2 + each.mean.double() ** 2 for each in (own, GAUSSIAN))
    assert_equal(found.sd, (second - found.mean.square()).sqrt(), 1e-6)
    for probability in (0.01, 0.3, 0.95):
        wanted = torch.full((N, 2), probability, dtype=D)
        precise = 1e-6 if name == "single precision" else 1e-10
        assert_equal(own.cdf(own.quantile(probability)).double(), wanted, precise)
        at = found.quantile(probability)
        assert_equal(0.5 * (own.cdf(at) + GAUSSIAN.cdf(at)).double(), wanted, precise)
    for away in (-1e6, 1e6):
        below = own.cdf(torch.full((N, 2), away, dtype=D))
        assert_equal(below, torch.full((N, 2), float(away > 0), dtype=below.dtype), 1e-3)


@torch.no_grad()
def test_counts_have_whole_quantiles():
    """The least number that reaches the probability, as for one likelihood."""
    rates = normals(3, N, 2)
    found = EnsemblePrediction([Poisson(3.0).predictive(rates), NegativeBinomial(9.0).predictive(rates)])
    for probability in (0.05, 0.5, 0.99):
        at = found.quantile(probability)
        assert torch.equal(at, at.round())
        assert bool(((found.cdf(at) >= probability) & (found.cdf(at - 1) < probability)).all())


def test_classes_of_several_networks():
    members = [CategoricalPrediction(normals(s, N, 3, seed=s).log_softmax(-1)) for s in (2, 5)]
    found, labels = EnsemblePrediction(members), torch.arange(N) % 3
    assert_equal(found.mean, 0.5 * (members[0].mean + members[1].mean))
    assert_equal(found.log_prob(labels), found.mean[torch.arange(N), labels].log())
    assert_equal(found.log_prob(labels.numpy()), found.log_prob(labels))
    with pytest.raises(AttributeError, match="'CategoricalPrediction' object has no attribute 'sd'"):
        _ = found.sd


def test_replicas_of_every_member_are_pooled_and_what_broke_down_is_no_number():
    means, y = normals(4, 3, N, 2), normals(N, 2, seed=6)
    member = GaussianPrediction(means, torch.ones(1, 3, 1, 1, dtype=D))
    pooled = EnsemblePrediction([member, member]).pooled(1)
    assert_equal(pooled.log_prob(y), member.pooled(1).log_prob(y))
    assert repr(pooled) == f"EnsemblePrediction(2 members, mean [{N}, 2])"
    broken = GaussianPrediction(torch.full((1, N, 2), torch.nan, dtype=D), torch.ones(1, dtype=D))
    assert bool(EnsemblePrediction([GAUSSIAN, broken]).quantile(0.3).isnan().all())


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        ([], ValueError, "the same points and outputs"),
        ([GAUSSIAN, GaussianPrediction(normals(4, N, 1), normals(1).abs())], ValueError, "the same points"),
        ([GAUSSIAN, torch.nn.Linear(2, 2)], TypeError, r"members\[1\] must be a prediction.* got Linear"),
        ([scipy.stats.norm(0.0, 1.0)], TypeError, r"members\[0\] must be a prediction"),
        ([GAUSSIAN, small_net(gilib.Factorised())], TypeError, "got Network: gilib.predict makes one"),
    ],
)
def test_what_cannot_be_mixed(members, error, message):
    with pytest.raises(error, match=message):
        EnsemblePrediction(members)


def test_densities_of_single_outputs_cannot_be_mixed():
    single = Normal(Y, 1.0)
    assert EnsemblePrediction([GAUSSIAN, Independent(single, 1)]).log_prob(Y).shape == (N,)
    with pytest.raises(ValueError, match=r"joint over outputs, \[5\], but Normal gave \[5, 2\]"):
        EnsemblePrediction([GAUSSIAN, single]).log_prob(Y)
    with pytest.raises(ValueError, match="a quantile needs one probability"):
        EnsemblePrediction([GAUSSIAN]).quantile(1.0)


ROWS, OUTPUTS = 3, 2
MEANS = 2 * normals(4, ROWS, OUTPUTS, seed=1)
NOISE = torch.tensor([0.3, 0.8], dtype=D).expand(1, ROWS, OUTPUTS)
MIXTURE = GaussianPrediction(MEANS, NOISE)


def test_a_replica_that_failed_is_no_number_and_spoils_no_other():
    y = normals(ROWS, OUTPUTS, seed=2)
    found = GaussianPrediction(torch.stack([MEANS, torch.full_like(MEANS, math.nan)], 1), NOISE)
    for (healthy, failed), alone in (
        (found.log_prob(y), MIXTURE.log_prob(y)),
        (found.quantile(0.2), MIXTURE.quantile(0.2)),
    ):
        assert_equal(healthy, alone, 1e-12)
        assert failed.isnan().all()


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1), (ROWS + 1, OUTPUTS), (1, OUTPUTS)])
def test_targets_of_the_wrong_count(shape):
    with pytest.raises(ValueError, match=r"targets must have shape \[3, 2\]"):
        MIXTURE.log_prob(normals(*shape))


SPREAD = normals(4, 2, ROWS, OUTPUTS, seed=3)
SD = 0.1 + normals(4, 2, ROWS, OUTPUTS, seed=4).abs()


@pytest.mark.parametrize(
    "shape", [(4, 2, ROWS, OUTPUTS), (1, 2, 1, 1), (4, 1, 1, OUTPUTS), (ROWS, 1), (), (OUTPUTS,)]
)
def test_components_of_their_own_width(shape):
    """A standard deviation for every sample, replica, point and output, or for some of these."""
    sd = SD.flatten()[: math.prod(shape)].reshape(shape)
    mixture, y = GaussianPrediction(SPREAD, sd), normals(2, ROWS, OUTPUTS, seed=5)
    full, means = sd.expand_as(SPREAD).numpy(), SPREAD.numpy()
    density = scipy.stats.norm(means, full).pdf(y.numpy())
    assert_equal(mixture.log_prob(y), np.log(density.prod(-1).mean(0)), 1e-10)
    assert_equal(mixture.sd, np.sqrt((full**2 + means**2).mean(0) - means.mean(0) ** 2), 1e-10)
    below = scipy.stats.norm(means, full).cdf(mixture.quantile(0.3).numpy()).mean(0)
    assert_equal(torch.tensor(below), torch.full((2, ROWS, OUTPUTS), 0.3, dtype=D), 1e-10)


@pytest.mark.parametrize("shape", [(3, 2, ROWS, OUTPUTS), (2, OUTPUTS), (1, 1, 1, 1, 1)])
def test_components_that_do_not_fit(shape):
    with pytest.raises(ValueError, match=r"component_sd must be broadcastable to means \[4, 2, 3, 2\], got"):
        GaussianPrediction(SPREAD, torch.ones(shape, dtype=D))


def test_members_are_pooled_with_samples():
    """Four samples of two members are eight components; members come fastest."""
    y, width = normals(ROWS, OUTPUTS, seed=5), torch.tensor([0.3, 0.8], dtype=D)[:, None, None]
    pooled = GaussianPrediction(SPREAD, width.expand(1, 2, 1, OUTPUTS)).pooled(1)
    by_hand = GaussianPrediction(SPREAD.flatten(0, 1), width.repeat(4, 1, 1))
    assert torch.equal(pooled.means, by_hand.means) and pooled.mean.shape == (ROWS, OUTPUTS)
    assert_equal(pooled.log_prob(y), by_hand.log_prob(y))
    assert_equal(pooled.sd, by_hand.sd)
    classes = gilib.prediction.CategoricalPrediction(SPREAD.log_softmax(-1))
    assert_equal(classes.pooled(1).mean, SPREAD.softmax(-1).mean((0, 1)))
    assert torch.equal(classes.pooled(0).mean, classes.mean)
    assert torch.equal(classes.classes, classes.mean.argmax(-1))
    assert_equal(classes.entropy, -(classes.mean * classes.mean.log()).sum(-1))


CENTRES = torch.cat([2.0 * normals(50, 4, 1), normals(50, 1, 1, seed=1) + 30.0 * (normals(50, 1, 1) > 0)], 1)
WIDTHS = normals(50, 5, 1, seed=2).abs() + 0.05  # the last point has two modes, far apart


@pytest.mark.parametrize("probability", [1e-9, 0.3, 0.62, 1 - 1e-9])
def test_the_distribution_function_is_inverted(probability):
    found = GaussianPrediction(CENTRES, WIDTHS).quantile(probability)
    for n in range(CENTRES.shape[1]):
        m, s = CENTRES[:, n, 0].numpy(), WIDTHS[:, n, 0].numpy()

        def excess(x, m=m, s=s):
            if probability > 0.5:  # from above, where it has the digits
                return (1.0 - probability) - scipy.stats.norm.sf((x - m) / s).mean()
            return scipy.stats.norm.cdf((x - m) / s).mean() - probability

        root = scipy.optimize.brentq(excess, -100, 100, xtol=1e-13, rtol=1e-13)
        assert float(found[n]) == pytest.approx(root, abs=1e-9)


@pytest.mark.parametrize("probability", [1e-6, 1e-16, 1e-300])
def test_far_tails_of_two_components(probability):
    """Of two components far apart one has each tail, at twice the probability: ndtr has no digits there."""
    means = torch.tensor([-5.0, 5.0], dtype=D)[:, None, None]
    pair = GaussianPrediction(means, torch.full((2, 1, 1), 0.5, dtype=D))
    wanted = -5.0 + 0.5 * scipy.stats.norm.ppf(2.0 * probability)
    assert_equal(pair.quantile(probability), torch.full((1, 1), wanted, dtype=D), 1e-13)
    if probability > 1e-12:  # whose distance from 1 has digits
        above = 1.0 - probability
        wanted = 5.0 + 0.5 * scipy.stats.norm.isf(2.0 * (1.0 - above))
        assert_equal(pair.quantile(above), torch.full((1, 1), wanted, dtype=D), 1e-13)
