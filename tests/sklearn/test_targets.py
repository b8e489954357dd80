"""Logarithms of targets, against scipy's log-normal and a model that is handed logarithms; warnings."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import lognorm

from gilib.sklearn import BayesianRegressor
from gilib.sklearn.targets import LogNormalPrediction

QUICK = {"hidden": (5,), "steps": 10, "num_samples": 10, "random_state": 0}
rng = np.random.default_rng(0)
X = rng.normal(size=(80, 2))
LOGS = np.stack([X[:, 0] + 0.5 * rng.normal(size=80), 3 + X[:, 1] + 0.2 * rng.normal(size=80)], 1)
Y = np.exp(LOGS)
M, S = np.array([0.3, -1.0, 2.0]), np.array([0.5, 1.0, 0.2])


def mixture(m, s):
    column = [torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (m, s)]
    return LogNormalPrediction(*column)


def test_one_component_is_scipys():
    own, dist = mixture(M[:1], S[:1]), lognorm(s=S[0], scale=np.exp(M[0]))
    np.testing.assert_allclose([own.mean.item(), own.sd.item()], [dist.mean(), dist.std()], rtol=1e-12)
    assert own.function_sd.item() == 0
    for p in (0.001, 0.05, 0.5, 0.95):
        np.testing.assert_allclose(own.quantile(p).item(), dist.ppf(p), rtol=1e-10)
    for y in (-1.0, 0.0, 0.01, 1.0, 7.0):
        target = torch.tensor([[y]], dtype=torch.float64)
        np.testing.assert_allclose(own.log_prob(target).item(), dist.logpdf(y), rtol=1e-12)


def test_a_mixture_has_the_moments_of_its_density():
    own = mixture(M, S)

    def density(y):
        return own.log_prob(torch.tensor([[y]], dtype=torch.float64)).exp().item()

    total, mean, square = (quad(lambda y, k=k: y**k * density(y), 0, 200, limit=400)[0] for k in range(3))
    np.testing.assert_allclose(total, 1, rtol=1e-6)
    np.testing.assert_allclose(own.mean.item(), mean, rtol=1e-6)
    np.testing.assert_allclose(own.sd.item(), np.sqrt(square - mean**2), rtol=1e-5)
    means = [lognorm(s=s, scale=np.exp(m)).mean() for m, s in zip(M, S, strict=True)]
    np.testing.assert_allclose(own.function_sd.item(), np.std(means))
    at = own.quantile(0.2).item()
    np.testing.assert_allclose(
        np.mean([lognorm(s=s, scale=np.exp(m)).cdf(at) for m, s in zip(M, S, strict=True)]), 0.2
    )


@pytest.fixture(scope="module")
def both():
    """A model of targets, and one that is handed their logarithms."""
    own = BayesianRegressor(**QUICK, target="log").fit(X, Y)
    return own, BayesianRegressor(**QUICK).fit(X, LOGS)


def test_it_is_the_model_of_the_logarithms(both):
    own, logs = both
    for one, other in zip(own.predict_interval(X, 0.8), logs.predict_interval(X, 0.8), strict=True):
        np.testing.assert_allclose(one, np.exp(other), rtol=1e-9)
        assert (one > 0).all()
    np.testing.assert_allclose(own.log_prob(X, Y), logs.log_prob(X, LOGS) - LOGS.sum(1), rtol=1e-9)
    assert own.elbo_ == pytest.approx(logs.elbo_ - LOGS.sum(1).mean()) == own.elbos_["network"]
    np.testing.assert_allclose(own.sample_y(X, 3), np.exp(logs.sample_y(X, 3)), rtol=1e-9)
    np.testing.assert_allclose(own.sample_functions(X, 3), np.exp(logs.sample_functions(X, 3)), rtol=1e-9)
    np.testing.assert_allclose(own.noise_sd_, logs.noise_sd_, rtol=1e-9)


def test_it_is_calibrated_in_logarithms(both):
    own, logs = (pickle.loads(pickle.dumps(model)) for model in both)
    new = np.random.default_rng(1).normal(size=(30, 2))
    targets = np.exp(new + np.random.default_rng(2).standard_t(3, size=(30, 2)))
    own.calibrate(new, targets)
    np.testing.assert_allclose(own.stretch_, logs.calibrate(new, np.log(targets)).stretch_)
    assert (own.predict_interval(X, 0.999)[0] > 0).all()
    np.testing.assert_allclose(own.sample_y(X[:2], 3), np.exp(logs.sample_y(X[:2], 3)), rtol=1e-9)
    with pytest.raises(ValueError, match="target='log' wants positive targets, but 30 of y are not"):
        own.calibrate(new, np.stack([-targets[:, 0], targets[:, 1]], 1))


def test_what_has_no_logarithm_is_refused():
    with pytest.raises(
        ValueError, match="target='log' wants positive targets, but 2 of y are not, the lowest -1"
    ):
        BayesianRegressor(**QUICK, target="log").fit(X, np.r_[0.0, -1.0, Y[2:, 0]])
    with pytest.raises(ValueError, match="unknown target 'sqrt': choose one of 'log'"):
        BayesianRegressor(**QUICK, target="sqrt").fit(X, Y)


def test_a_constant_target_is_predicted_as_it_is():
    with pytest.warns(UserWarning, match="all targets are the same"):
        model = BayesianRegressor(**QUICK, target="log").fit(X, np.full(80, 1e6))
    low, high = model.predict_interval(X[:1], 0.5)
    dist = lognorm(s=1, scale=1e6)
    np.testing.assert_allclose(
        [low[0], high[0], model.predict(X[:1])[0]], [*dist.ppf([0.25, 0.75]), dist.mean()]
    )


def said(y, **options):
    """The warnings of a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BayesianRegressor(**(QUICK | {"steps": 1}), **options).fit(X, y)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (pd.Series(Y[:, 0], name="price"), "column 'price' of y holds positive numbers only"),
        (np.arange(80) % 4, "column 0 of y holds only 4 different numbers, all whole, but a Gaussian"),
        (np.where(X[:, 0] > 0.2, X[:, 1], 0.0), "column 0 of y is 0 in 60% of the rows, but no Gaussian"),
    ],
)
def test_a_gaussian_that_cannot_be_right_is_warned_of(y, words):
    (message,) = said(y)
    assert re.match(words, message), message


def test_other_targets_bring_no_warning():
    """Gaussian, positive and far from zero, whole numbers that are many, logarithms, ten rows."""
    for y in (X[:, 0], 20 + np.exp(X[:, 0]), np.arange(80) - 40, -Y[:, 0]):
        assert said(y) == []
    assert said(Y[:, 0], target="log") == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianRegressor(**QUICK).fit(X[:10], np.arange(10) % 2)
