"""Targets that are all the same, and a single one: one rule for all models."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from gilib.sklearn import BayesianRegressor

QUICK = {"steps": 2, "num_inducing": 10, "random_state": 0}
X = np.random.default_rng(0).normal(size=(24, 2))
FAR = np.array([[0.0, 0.0], [100.0, -100.0]])
pytestmark = pytest.mark.filterwarnings("ignore:.*does not read", "ignore:.*lie far outside")


def regressor(model):
    return BayesianRegressor(model, **QUICK)


@pytest.mark.parametrize(
    ("model", "value", "size"), [("auto", 7.0, 7.0), ("gp", -2e9, 2e9), ("network", 0.0, 1.0)]
)
def test_a_constant_is_predicted_and_its_scale_is_not_claimed(model, value, size):
    with pytest.warns(UserWarning, match=r"all targets are the same in outputs \[0\]"):
        found = regressor(model).fit(X, np.full(len(X), value))
    mean, sd = found.predict(FAR, return_std=True)
    assert mean.tolist() == [value, value] and sd.tolist() == [size, size]
    np.testing.assert_allclose(found.log_prob(FAR, mean), norm.logpdf(0, scale=size), rtol=1e-12)
    lower, upper = found.predict_interval(FAR, 0.9)
    np.testing.assert_allclose([lower, upper], value + size * norm.ppf([[0.05, 0.05], [0.95, 0.95]]))
    assert (found.sample_functions(FAR, 3) == value).all()
    assert (found.noise_sd(FAR) == size).all() and found.noise_sd_.tolist() == [size]
    drawn = found.sample_y(FAR, 4000) - value
    np.testing.assert_allclose(drawn.std(1), size, rtol=6 / np.sqrt(2 * 4000))


@pytest.mark.parametrize("model", ["network", "heteroscedastic_gp"])
def test_constant_outputs_leave_the_others_as_they_are(model):
    varied = np.stack([X[:, 0], 3 * X[:, 1]], 1)
    y = pd.DataFrame({"a": varied[:, 0], "same": 7.0, "b": varied[:, 1]})
    with pytest.warns(UserWarning, match=r"outputs \['same'\]"):
        found = regressor(model).fit(X, y)
    alone, y = regressor(model).fit(X, varied), y.to_numpy()
    for own, other in zip(found.predict(X, return_std=True), alone.predict(X, return_std=True), strict=True):
        assert own.shape == (24, 3) and (own[:, 1] == 7.0).all()
        np.testing.assert_allclose(own[:, [0, 2]], other, rtol=1e-12)
    assert found.elbo_ == alone.elbo_
    np.testing.assert_allclose(found.noise_sd_[[0, 2]], alone.noise_sd_)
    np.testing.assert_allclose(found.noise_sd(X)[:, [0, 2]], alone.noise_sd(X))
    assert found.noise_sd_[1] == 7.0 and (found.noise_sd(X)[:, 1] == 7.0).all()
    np.testing.assert_allclose(found.sample_functions(X, 2)[:, [0, 2]], alone.sample_functions(X, 2))
    np.testing.assert_allclose(found.log_prob(X, y) - alone.log_prob(X, varied), norm.logpdf(0, scale=7))
    assert found.sample_y(X, 5).shape == (24, 3, 5)


def test_one_row_tells_nothing_of_a_scale():
    with pytest.raises(ValueError, match="X has 1 sample, and one target tells nothing about the scale"):
        regressor("gp").fit([[3.0]], [7.0])


@pytest.mark.filterwarnings("ignore:all targets are the same")
def test_constant_but_for_rounding():
    y = np.full(len(X), 0.3)
    y[::2] = 0.1 + 0.2
    assert len(set(y)) == 2
    assert regressor("gp").fit(X, y).predict(FAR, return_std=True)[1].tolist() == [min(y)] * 2
