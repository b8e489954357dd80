"""Joint covariances of predictions: against scikit-learn's process, samples and marginals."""

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gilib
from gilib.sklearn import BayesianRegressor

rng = np.random.default_rng(0)
X, NEW = rng.normal(size=(30, 2)), 2.0 + 0.5 * rng.normal(size=(6, 2))  # close together, away from the data
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=30)
MANY = np.column_stack([50 * Y, X[:, 1] + 0.2 * rng.normal(size=30)])
MODELS = {
    "gp": {"model": "gp", "steps": 5},
    "sparse": {"model": "gp", "steps": 5, "num_inducing": 9},
    "heteroscedastic_gp": {"model": "heteroscedastic_gp", "steps": 5},
    "network": {"model": "network", "steps": 30, "hidden": (5,)},
    "deep_gp": {"model": "deep_gp", "steps": 5, "num_inducing": 9},
}


def fitted(settings, y, num_samples=50):
    return BayesianRegressor(num_samples=num_samples, random_state=0, **settings).fit(X, y)


def test_against_scikit_learns_process():
    """With our kernel and noise, in the units of the table."""
    recipe = gilib.recommended("gp", kernels=(gilib.kernels.RBF(),), steps=5)
    model = BayesianRegressor(recipe=recipe, random_state=0).fit(X, Y)
    (layer,) = model.net_.layers
    log, units = layer.hyperparameters.log, model.normalisation_
    scale = float(units.y_std) ** 2
    lengthscale = (log["lengthscale"].detach().exp() * units.x_std).numpy()
    theirs = ConstantKernel(scale * float(log["variance"].detach().exp())) * RBF(lengthscale)
    noise = scale * float(model.likelihood_.noise_variance)
    process = GaussianProcessRegressor(theirs + WhiteKernel(noise), alpha=1e-12, optimizer=None)
    process.fit(X, Y - float(units.y_mean))
    mean, covariance = model.predict(NEW, return_cov=True)
    wanted, expected = process.predict(NEW, return_cov=True)
    np.testing.assert_allclose(mean - float(units.y_mean), wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(covariance, expected, rtol=1e-4, atol=1e-6)
    assert abs(expected[0, 1:]).max() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_against_functions_drawn_at_all_rows_together(name):
    """Between rows, where noise has no part, within six standard errors of both numbers of functions.

    The diagonal is the variance, and no direction has less than none.
    """
    model = fitted(MODELS[name], MANY, num_samples=400)
    mean, sd, low, high, covariance = model.predict(NEW, True, 0.9, True)
    assert covariance.shape == (6, 6, 2)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), sd.T)
    for each in covariance.transpose(2, 0, 1):
        np.testing.assert_allclose(each, each.T, atol=1e-12)
        assert np.linalg.eigvalsh(each).min() > 0
    assert np.array_equal(low < mean, mean < high)
    functions = model.sample_functions(NEW, 400, random_state=1)
    away = functions - functions.mean(-1, keepdims=True)
    products = away[:, None] * away
    found, error = products.mean(-1), products.std(-1) * (2 / 400) ** 0.5
    apart = ~np.eye(6, dtype=bool)
    assert (abs(found - covariance) < 6 * error)[apart].all()
    assert (abs(covariance) > 6 * error)[apart].any(0).all()


@pytest.mark.parametrize("name", ["gp", "network"])
def test_it_is_stretched_as_the_standard_deviation_is(name):
    model, rows = fitted(MODELS[name], MANY), NEW.repeat(2, 0)
    before = model.predict(NEW, return_cov=True)[1]
    after = model.calibrate(rows, model.predict(rows) + 3.0).predict(NEW, return_cov=True)[1]
    assert (model.stretch_ != 1).all()
    np.testing.assert_allclose(after, model.stretch_**2 * before)


def test_constant_outputs_frames_and_pipelines():
    y = pd.DataFrame({"a": Y, "b": np.full(30, 2.0)})
    pipe = make_pipeline(StandardScaler(), BayesianRegressor(**MODELS["gp"], random_state=0))
    with pytest.warns(UserWarning, match="all targets are the same"):
        pipe.fit(pd.DataFrame(X), y)
    mean, covariance = pipe.predict(pd.DataFrame(NEW), return_cov=True)
    assert isinstance(covariance, np.ndarray) and mean.shape == (6, 2)
    np.testing.assert_allclose(covariance[..., 1], 4.0 * np.eye(6))


@pytest.mark.parametrize("settings", [{"target": "log"}, {"likelihood": "gamma"}])
def test_predictions_that_are_not_gaussian_have_none(settings):
    model = BayesianRegressor("network", hidden=(3,), steps=3, random_state=0, **settings).fit(X, np.exp(Y))
    with pytest.raises(ValueError, match="return_cov is for Gaussian predictions: for others, np.cov"):
        model.predict(NEW, return_cov=True)
