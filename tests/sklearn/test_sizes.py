"""Many rows and many classes: bounded work, or words beforehand."""

import warnings
import weakref

import numpy as np
import pytest
import torch

import gilib
from gilib.recipes import bound
from gilib.sklearn import BayesianClassifier, BayesianRegressor
from tests.support import seeded

X = np.random.default_rng(0).normal(size=(40, 2))
QUICK = {"steps": 2, "num_samples": 5, "random_state": 0}


def test_the_bound_of_many_rows_takes_fewer_draws(monkeypatch):
    x = torch.from_numpy(X).float()
    net, likelihood = gilib.recommended("network").build(x, x[:, :1])

    def value(draws):
        return bound(net, likelihood, x, x[:, :1], num_samples=draws, generator=seeded())

    assert value(None) == value(100)
    monkeypatch.setattr("gilib.recipes.base.EVALUATIONS", 130)
    assert value(None) == value(3) != value(100)
    monkeypatch.setattr("gilib.recipes.base.EVALUATIONS", 10)
    assert value(None) == value(1)


def test_functions_of_many_classes_are_held_for_fewer_rows():
    labels = np.arange(300) % 150
    x = np.random.default_rng(1).normal(size=(700, 2))
    model = BayesianClassifier("network", **QUICK).fit(x[:300], labels)
    assert [batch.mean.shape for batch in model._batches(x)] == [(666, 150), (34, 150)]
    np.testing.assert_allclose(model.predict_proba(x)[-20:], model.predict_proba(x[-20:]))
    assert model.sample_y(x, 3).shape == (700, 3)


def test_a_process_of_hundreds_of_classes_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("gilib.recipes.processes.MOST", 4000)
    labels = np.arange(40) % 4
    with pytest.raises(ValueError, match="process of 4 outputs has a covariance of 40 .* num_inducing=31 or"):
        BayesianClassifier("gp", **QUICK).fit(X, labels)
    assert BayesianClassifier("gp", num_inducing=31, **QUICK).fit(X, labels).n_iter_ == 2
    with pytest.warns(UserWarning, match="gp cannot be trained and is left out"):
        assert set(BayesianClassifier("auto", **QUICK).fit(X, labels).elbos_) == {"network", "deep_gp"}


def test_a_process_of_many_rows_says_how_long_it_takes(monkeypatch):
    monkeypatch.setattr("gilib.sklearn.estimator.MANY_ROWS", 39)
    with pytest.warns(UserWarning, match="gp: a process reads all 40 rows .* takes about 0.0002 hours"):
        BayesianRegressor("gp", **QUICK).fit(X, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianRegressor("network", **QUICK).fit(X, X[:, 0])
        BayesianRegressor("gp", likelihood="student", **QUICK).fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("kind", "methods"),
    [
        (BayesianRegressor, ["predict", "predict_interval"]),
        (BayesianClassifier, ["predict", "predict_proba", "predict_log_proba", "predict_entropy"]),
    ],
)
def test_outputs_of_all_functions_are_never_held_together(kind, methods, monkeypatch):
    """Of 3500 rows, evaluated a thousand at a time: what is drawn of a batch is gone with it."""
    model = kind("network", **QUICK).fit(X, X[:, 0] > 0.0)
    rows = np.random.default_rng(1).normal(size=(3500, 2))
    likelihood, seen, most = type(model.likelihood_), [], []
    plain = likelihood.predictive

    def watched(self, outputs, *rest):
        seen.append(weakref.ref(outputs))
        most.append(sum(part().shape[-2] for part in seen if part() is not None))
        return plain(self, outputs, *rest)

    monkeypatch.setattr(likelihood, "predictive", watched)
    for method in methods:
        seen.clear()
        found = getattr(model, method)(rows)
        assert len(seen) == 4 and max(most) <= 2000
        again = getattr(model, method)(rows[3100:3200])
        axis = 1 if method == "predict_interval" else 0
        whole = np.take(np.asarray(found), np.arange(3100, 3200), axis)
        np.testing.assert_allclose(whole, again, rtol=1e-9)
