"""A fit that fails changes nothing; models that hold NaN, and default devices elsewhere, are refused."""

import numpy as np
import pandas as pd
import pytest
import torch

import gilib
from gilib.sklearn import BayesianClassifier, BayesianRegressor

QUICK = {"hidden": (5,), "steps": 3, "num_samples": 5, "random_state": 0}
X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["speed", "load"])
LABELS = np.arange(30) % 2
BOTH = pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


@BOTH
@pytest.mark.parametrize("late", [False, True])
def test_a_second_fit_that_fails_leaves_the_first_model_whole(kind, late, monkeypatch):
    model = kind(**QUICK).fit(X, LABELS)
    before, predictions = dict(vars(model)), model.predict(X)
    others = X.assign(more=1.0).set_axis(["a", "b", "c"], axis=1)
    if late:
        monkeypatch.setattr(gilib.recipes.NetworkRecipe, "_train", interrupt)
    else:
        model.set_params(steps=-1)
    with pytest.raises(KeyboardInterrupt if late else ValueError):
        model.fit(others, np.where(LABELS, "a", "b") if kind is BayesianClassifier else X)
    after = vars(model.set_params(steps=3))
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)
    assert np.array_equal(model.predict(X), predictions)


@BOTH
def test_another_default_device_and_models_that_hold_nan_are_refused(kind):
    model = kind(**QUICK).fit(X, LABELS)
    with torch.device("meta"):
        for use in (lambda x: kind(**QUICK).fit(x, LABELS), model.predict, model.sample_y):
            with pytest.raises(ValueError, match="default device is meta.*`with torch.device"):
                use(X)
            with torch.device("cpu"):
                use(X)
    with torch.no_grad():
        next(model.net_.parameters()).view(-1)[0] = torch.nan
    for use in (model.predict, model.sample_y):
        with pytest.raises(ValueError, match="the model holds NaN or infinity in inducing_points"):
            use(X)


@pytest.mark.parametrize(
    ("kind", "methods"),
    [
        (BayesianRegressor, ["predict", "predict_interval"]),
        (BayesianClassifier, ["predict", "predict_proba", "predict_log_proba", "predict_entropy"]),
    ],
)
def test_outputs_of_all_functions_are_never_held_together(kind, methods, monkeypatch):
    """Of 3500 rows, evaluated a thousand at a time: what is drawn of a batch is gone with it."""
    import weakref

    model = kind(**QUICK).fit(X.to_numpy(), LABELS)
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
