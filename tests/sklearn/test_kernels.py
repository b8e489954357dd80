"""Kernels of one's own in estimators: units and names of columns, against scikit-learn's exact process."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from gilib.kernels import RBF, Periodic, White
from gilib.sklearn import BayesianRegressor

RNG = np.random.default_rng(0)
X = np.column_stack([1950.0 + 40.0 * RNG.random(60), 1e-3 * RNG.normal(size=60)])
Y = np.sin(2 * np.pi * X[:, 0] / 7.0) + 800.0 * X[:, 1] + 0.1 * RNG.normal(size=60)
KERNEL = Periodic(period=7.0).on(0) + RBF(2e-3).on(1)
FRAME = pd.DataFrame(X, columns=["year", "dose"])
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
    model = process().fit(X, Y)
    parts = (part.parts[0] for part in next(iter(model.net_.layers)).hyperparameters.parts[0].parts)
    season, dose = ({key: float(log.detach().exp()) for key, log in part.log.items()} for part in parts)
    assert season["period"] == pytest.approx(7.0, abs=0.1) and 5e-4 < dose["lengthscale"] < 0.05
    noise = float(model.likelihood_.noise_variance)
    theirs = season["variance"] * OnColumn(kernels.ExpSineSquared(season["lengthscale"], season["period"]), 0)
    theirs += dose["variance"] * OnColumn(kernels.RBF(dose["lengthscale"]), 1)
    oracle = GaussianProcessRegressor(theirs, alpha=noise, optimizer=None)
    scale = Y.std(ddof=1)
    oracle.fit(X, (Y - Y.mean()) / scale)
    new = X[:9] + [[30.0, 1e-4]]
    mean, sd = oracle.predict(new, return_std=True)
    ours = model.predict(new, return_std=True)
    np.testing.assert_allclose(ours[0], Y.mean() + scale * mean, atol=1e-3)
    np.testing.assert_allclose(ours[1], scale * np.sqrt(sd**2 + noise), rtol=1e-3)


def test_columns_by_name_are_those_by_number():
    ours, theirs = process(NAMED, steps=20).fit(FRAME, Y), process(steps=20).fit(X, Y)
    np.testing.assert_allclose(ours.predict(FRAME), theirs.predict(X), atol=1e-5)  # frames lie by columns
    other = NAMED.parts[1] + NAMED.parts[0]
    turned = process(other, steps=20).fit(FRAME[["dose", "year"]], Y).predict(FRAME[["dose", "year"]])
    np.testing.assert_allclose(turned, ours.predict(FRAME), atol=1e-2)


def test_the_kernel_is_a_setting_like_any_other():
    model = clone(process(NAMED, steps=5)).fit(FRAME, Y)
    assert model.get_params()["kernel"] == NAMED == clone(model).kernel
    assert "kernel=KernelSum" in repr(model)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(FRAME), model.predict(FRAME))


def test_a_bare_kernel_starts_where_it_says():
    model = process(RBF((3.0, 0.05)), steps=1).fit(X, Y)
    built = next(iter(model.net_.layers)).kernel
    assert built == RBF((3.0, 0.05)).on(0, 1)


@pytest.mark.parametrize(
    ("settings", "x", "error", "message"),
    [
        ({"model": "network"}, X, ValueError, "kernel is for model=\"gp\", got model='network'"),
        ({"kernel": NAMED}, X, ValueError, r"on columns \['year'\], but the columns are \['0', '1'\]"),
        ({"kernel": RBF().on("age")}, FRAME, ValueError, r"\['age'\], but the columns are \['year', 'dose"),
        ({"kernel": RBF().on(2)}, X, ValueError, r"columns \(2,\) needs them among 0 ... 1"),
        ({"kernel": RBF() + White()}, X, ValueError, "leave gilib.kernels.White out"),
        ({"kernel": "rbf"}, X, TypeError, "kernel must be a Kernel, got str"),
    ],
)
def test_kernels_that_cannot_be(settings, x, error, message):
    with pytest.raises(error, match=message):
        BayesianRegressor(**({"model": "gp", "kernel": KERNEL, "random_state": 0} | settings)).fit(x, Y)
