"""scikit-learn's own checks, searches and pipelines, random states, fits that fail, many rows and classes."""

import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import gilib
from gilib.recipes import bound
from gilib.sklearn import BayesianClassifier, BayesianRegressor
from tests.support import seeded

QUICK = {"hidden": (10,), "steps": 5, "lr": 0.1, "num_samples": 5, "random_state": 0}
X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0] - np.sin(X[:, 1])
LABELS = np.where(Y > 0, "up", "down")
BOTH = pytest.mark.parametrize(
    ("kind", "y"), [(BayesianRegressor, Y), (BayesianClassifier, LABELS)], ids=["regressor", "classifier"]
)

PROCESS = BayesianRegressor(steps=5, num_inducing=5, num_samples=5, random_state=0)  # the default of few rows


@parametrize_with_checks([PROCESS, BayesianClassifier(num_inducing=20, **QUICK)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@BOTH
def test_a_grid_search_over_a_pipeline(kind, y):
    model = make_pipeline(StandardScaler(), kind(**(QUICK | {"steps": 3})))
    name = f"{kind.__name__.lower()}__hidden"
    scoring, least = ("roc_auc", 0.5) if kind is BayesianClassifier else ("r2", -1)
    search = GridSearchCV(model, {name: [(3,), (5, 4)]}, cv=2, scoring=scoring).fit(X, y)
    assert search.best_params_[name] in [(3,), (5, 4)]
    assert search.best_score_ > least and search.predict(X).shape == y.shape


@BOTH
def test_global_random_states_are_neither_read_nor_changed(kind, y):
    def run():
        model = kind(**QUICK).fit(X, y)
        return model.predict(X), model.sample_y(X, 2)

    first = run()
    np.random.seed(5)
    torch.manual_seed(5)
    before, before_torch = np.random.get_state()[1].copy(), torch.get_rng_state()
    second = run()
    kind(**(QUICK | {"random_state": None, "steps": 1})).fit(X, y)
    assert np.array_equal(np.random.get_state()[1], before)
    assert torch.equal(torch.get_rng_state(), before_torch)
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_random_states_of_every_kind():
    def elbo(state):
        return BayesianRegressor(**(QUICK | {"random_state": state, "steps": 2})).fit(X, Y).elbo_

    assert elbo(np.random.RandomState(3)) == elbo(np.random.RandomState(3)) != elbo(4)
    assert elbo(np.random.default_rng(3)) == elbo(np.random.default_rng(3))
    assert elbo(None) != elbo(None)
    assert BayesianRegressor(**(QUICK | {"random_state": 2**70, "steps": 2})).fit(X, Y).seed_ == 0
    for wrong in ("one", -1, 1.5, True):
        with pytest.raises(ValueError, match="random_state must be an integer of at least 0, a numpy"):
            elbo(wrong)


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


@BOTH
@pytest.mark.parametrize("late", [False, True])
def test_a_second_fit_that_fails_leaves_the_first_model_whole(kind, y, late, monkeypatch):
    model = kind(**QUICK).fit(X, y)
    before, predictions = dict(vars(model)), model.predict(X)
    others = pd.DataFrame(np.c_[X, Y], columns=list("abcd"))
    if late:
        monkeypatch.setattr(gilib.recipes.NetworkRecipe, "_train", interrupt)
    else:
        model.set_params(steps=-1)
    with pytest.raises(KeyboardInterrupt if late else ValueError):
        model.fit(others, LABELS[::-1] if kind is BayesianClassifier else X)
    after = vars(model.set_params(steps=5))
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)
    assert np.array_equal(model.predict(X), predictions)


@BOTH
def test_another_default_device_and_models_that_hold_nan_are_refused(kind, y):
    model = kind(**QUICK).fit(X, y)
    with torch.device("meta"):
        for use in (lambda x: kind(**QUICK).fit(x, y), model.predict, model.sample_y):
            with pytest.raises(ValueError, match="default device is meta.*`with torch.device"):
                use(X)
            with torch.device("cpu"):
                use(X)
    with torch.no_grad():
        next(model.net_.parameters()).view(-1)[0] = torch.nan
    for use in (model.predict, model.sample_y):
        with pytest.raises(ValueError, match="the model holds NaN or infinity in inducing_points"):
            use(X)


FEW = np.random.default_rng(0).normal(size=(40, 2))
SHORT = {"steps": 2, "num_samples": 5, "random_state": 0}


def test_the_bound_of_many_rows_takes_fewer_draws(monkeypatch):
    x = torch.from_numpy(FEW).float()
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
    model = BayesianClassifier("network", **SHORT).fit(x[:300], labels)
    assert [batch.mean.shape for batch in model._batches(x)] == [(666, 150), (34, 150)]
    np.testing.assert_allclose(model.predict_proba(x)[-20:], model.predict_proba(x[-20:]))
    assert model.sample_y(x, 3).shape == (700, 3)


def test_a_process_of_hundreds_of_classes_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("gilib.recipes.processes.MOST", 4000)
    labels = np.arange(40) % 4
    with pytest.raises(ValueError, match="process of 4 outputs has a covariance of 40 .* num_inducing=31 or"):
        BayesianClassifier("gp", **SHORT).fit(FEW, labels)
    assert BayesianClassifier("gp", num_inducing=31, **SHORT).fit(FEW, labels).n_iter_ == 2
    with pytest.warns(UserWarning, match="gp cannot be trained and is left out"):
        assert set(BayesianClassifier("auto", **SHORT).fit(FEW, labels).elbos_) == {"network", "deep_gp"}


def test_a_process_of_many_rows_says_how_long_it_takes(monkeypatch):
    monkeypatch.setattr("gilib.sklearn.estimator.MANY_ROWS", 39)
    with pytest.warns(UserWarning, match="gp: a process reads all 40 rows .* takes about 0.0002 hours"):
        BayesianRegressor("gp", **SHORT).fit(FEW, FEW[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianRegressor("network", **SHORT).fit(FEW, FEW[:, 0])
        BayesianRegressor("gp", likelihood="student", **SHORT).fit(FEW, FEW[:, 0])


@pytest.mark.parametrize(
    ("kind", "methods"),
    [
        (BayesianRegressor, ["predict", "predict_interval"]),
        (BayesianClassifier, ["predict", "predict_proba", "predict_log_proba", "predict_entropy"]),
    ],
)
def test_outputs_of_all_functions_are_never_held_together(kind, methods, monkeypatch):
    """Of 3500 rows, evaluated a thousand at a time: what is drawn of a batch is gone with it."""
    model = kind("network", **SHORT).fit(FEW, FEW[:, 0] > 0.0)
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
