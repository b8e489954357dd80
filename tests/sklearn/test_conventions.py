"""scikit-learn's own checks, its searches and pipelines, random states, and fits that fail."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import gilib
from gilib.sklearn import BayesianClassifier, BayesianRegressor

QUICK = {"hidden": (10,), "steps": 5, "lr": 0.1, "num_samples": 5, "random_state": 0}
X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0] - np.sin(X[:, 1])
LABELS = np.where(Y > 0, "up", "down")
BOTH = pytest.mark.parametrize(
    ("kind", "y"), [(BayesianRegressor, Y), (BayesianClassifier, LABELS)], ids=["regressor", "classifier"]
)


PROCESS = BayesianRegressor(steps=1, num_inducing=5, num_samples=5, random_state=0)  # the default of few rows


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
