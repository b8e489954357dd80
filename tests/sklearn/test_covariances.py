"""Joint covariances, and kernels of one's own on columns of a frame, against scikit-learn's process."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gilib
from gilib.kernels import RBF, Periodic, White
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
    theirs = kernels.ConstantKernel(scale * float(log["variance"].detach().exp())) * kernels.RBF(lengthscale)
    noise = scale * float(model.likelihood_.noise_variance)
    process = GaussianProcessRegressor(theirs + kernels.WhiteKernel(noise), alpha=1e-12, optimizer=None)
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


RNG = np.random.default_rng(0)
WAVES = np.column_stack([1950.0 + 40.0 * RNG.random(60), 1e-3 * RNG.normal(size=60)])
HEIGHTS = np.sin(2 * np.pi * WAVES[:, 0] / 7.0) + 800.0 * WAVES[:, 1] + 0.1 * RNG.normal(size=60)
KERNEL = Periodic(period=7.0).on(0) + RBF(2e-3).on(1)
FRAME = pd.DataFrame(WAVES, columns=["year", "dose"])
NAMED = Periodic(period=7.0).on("year") + RBF(2e-3).on("dose")


def process(kernel=KERNEL, **settings):
    return BayesianRegressor("gp", kernel=kernel, random_state=0, **settings)


class OnColumn(kernels.NormalizedKernelMixin, kernels.StationaryKernelMixin, kernels.Kernel):
    def __init__(self, kernel, column):
        self.kernel, self.column = kernel, column

    def __call__(self, X, Y=None, eval_gradient=False):
        own = None if Y is None else Y[:, [self.column]]
        return self.kernel(X[:, [self.column]], own)


def test_hyper_parameters_have_the_units_of_columns_and_predictions_are_scikit_learns():
    model = process().fit(WAVES, HEIGHTS)
    parts = (part.parts[0] for part in next(iter(model.net_.layers)).hyperparameters.parts[0].parts)
    season, dose = ({key: float(log.detach().exp()) for key, log in part.log.items()} for part in parts)
    assert season["period"] == pytest.approx(7.0, abs=0.1) and 5e-4 < dose["lengthscale"] < 0.05
    noise = float(model.likelihood_.noise_variance)
    theirs = season["variance"] * OnColumn(kernels.ExpSineSquared(season["lengthscale"], season["period"]), 0)
    theirs += dose["variance"] * OnColumn(kernels.RBF(dose["lengthscale"]), 1)
    oracle = GaussianProcessRegressor(theirs, alpha=noise, optimizer=None)
    scale = HEIGHTS.std(ddof=1)
    oracle.fit(WAVES, (HEIGHTS - HEIGHTS.mean()) / scale)
    new = WAVES[:9] + [[30.0, 1e-4]]
    mean, sd = oracle.predict(new, return_std=True)
    ours = model.predict(new, return_std=True)
    np.testing.assert_allclose(ours[0], HEIGHTS.mean() + scale * mean, atol=1e-3)
    np.testing.assert_allclose(ours[1], scale * np.sqrt(sd**2 + noise), rtol=1e-3)


def test_columns_by_name_are_those_by_number():
    ours, theirs = process(NAMED, steps=20).fit(FRAME, HEIGHTS), process(steps=20).fit(WAVES, HEIGHTS)
    np.testing.assert_allclose(ours.predict(FRAME), theirs.predict(WAVES), atol=1e-5)  # frames lie by columns
    other = NAMED.parts[1] + NAMED.parts[0]
    turned = process(other, steps=20).fit(FRAME[["dose", "year"]], HEIGHTS).predict(FRAME[["dose", "year"]])
    np.testing.assert_allclose(turned, ours.predict(FRAME), atol=1e-2)


def test_the_kernel_is_a_setting_like_any_other():
    model = clone(process(NAMED, steps=5)).fit(FRAME, HEIGHTS)
    assert model.get_params()["kernel"] == NAMED == clone(model).kernel
    assert "kernel=KernelSum" in repr(model)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(FRAME), model.predict(FRAME))


def test_a_bare_kernel_starts_where_it_says():
    model = process(RBF((3.0, 0.05)), steps=1).fit(WAVES, HEIGHTS)
    assert next(iter(model.net_.layers)).kernel == RBF((3.0, 0.05)).on(0, 1)


@pytest.mark.parametrize(
    ("settings", "x", "error", "message"),
    [
        ({"model": "network"}, WAVES, ValueError, "kernel is for model=\"gp\", got model='network'"),
        ({"kernel": NAMED}, WAVES, ValueError, r"on columns \['year'\], but the columns are \['0', '1'\]"),
        ({"kernel": RBF().on("age")}, FRAME, ValueError, r"\['age'\], but the columns are \['year', 'dose"),
        ({"kernel": RBF().on(2)}, WAVES, ValueError, r"columns \(2,\) needs them among 0 ... 1"),
        ({"kernel": RBF() + White()}, WAVES, ValueError, "leave gilib.kernels.White out"),
        ({"kernel": "rbf"}, WAVES, TypeError, "kernel must be a Kernel, got str"),
    ],
)
def test_kernels_that_cannot_be(settings, x, error, message):
    with pytest.raises(error, match=message):
        BayesianRegressor(**({"model": "gp", "kernel": KERNEL, "random_state": 0} | settings)).fit(x, HEIGHTS)
