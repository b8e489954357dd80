"""Functions and densities of the regressor, frames in and out, the calibration of a classifier."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from gilib.metrics import calibration_curve
from gilib.sklearn import BayesianClassifier, BayesianRegressor
from tests.sklearn.test_estimators import QUICK, X, Y


@pytest.mark.parametrize("kind", ["gp", "network"])
def test_a_sample_is_one_function(kind):
    """Far from the data functions differ by much, each from itself nearby by nothing but the noise."""
    model = BayesianRegressor(model=kind, steps=20, random_state=0).fit(X[:60], Y[:60, 0])
    nearby = X[:1] + np.array([[400.0], [400.0 + 1e-6]])
    samples = model.sample_y(nearby, 2000)
    noise = model.noise_sd_[0] * np.sqrt(2)
    assert np.sqrt(2) * samples[0].std() > 1.3 * noise  # what independent points would differ by
    assert abs(np.diff(samples, axis=0).std() / noise - 1) < 6 / np.sqrt(2 * 2000)


@pytest.fixture(scope="module")
def framed():
    x, y = pd.DataFrame(X, columns=["heat", "load"]), pd.DataFrame(Y, columns=["drift", "wear"])
    return x, y, BayesianRegressor(**QUICK).fit(x, y)


def test_functions_are_samples_without_noise(framed):
    x, _, model = framed
    functions, samples = model.sample_functions(x[:5], 1000), model.sample_y(x[:5], 1000)
    assert functions.shape == samples.shape == (5, 2, 1000)
    noise = (samples - functions).std(-1)  # the functions are those of the same seed
    np.testing.assert_allclose(noise, np.broadcast_to(model.noise_sd_, (5, 2)), rtol=6 / np.sqrt(2 * 1000))
    one = BayesianRegressor(**QUICK | {"steps": 2}).fit(X[:60], Y[:60, 0])
    assert one.sample_functions(X[:5], 3).shape == (5, 3)


def test_scores_are_of_targets_by_name(framed):
    x, y, model = framed
    assert model.score(x, y[["wear", "drift"]]) == model.score(x, y) > 0.9
    assert np.array_equal(model.log_prob(x, y[["wear", "drift"]]), model.log_prob(x, y))
    assert np.array_equal(model.log_prob(x, Y), model.log_prob(x, y))
    weights = np.arange(len(y))
    assert model.score(x, y, weights) == model.score(x, Y, sample_weight=weights) != model.score(x, y)
    with pytest.raises(ValueError, match=r"columns \['drift', 'wear'\], got \['drift', 'tear'\]"):
        model.score(x, y.rename(columns={"wear": "tear"}))
    for wrong in (y[:-1], Y[:, 0], Y.T):
        with pytest.raises(ValueError, match=r"y must hold \[300, 2\] targets"):
            model.log_prob(x, wrong)
    with pytest.raises(ValueError, match="NaN"):
        model.log_prob(x, np.full_like(Y, np.nan))
    new = BayesianRegressor()
    for use in (new.sample_y, new.sample_functions, lambda x: new.log_prob(x, y), lambda x: new.score(x, y)):
        with pytest.raises(NotFittedError):
            use(x)


def test_noise_that_varies_is_that_of_samples():
    """Its size at a point, in original units, is that of samples about their functions."""
    rng = np.random.default_rng(0)
    x = X[:100]
    y = x[:, 0] + (0.1 + 0.4 * (x[:, 0] > x[:, 0].mean())) * rng.normal(size=len(x))
    x = pd.DataFrame(x, columns=["heat", "load"])
    target = pd.Series(1000.0 * y, name="drift")
    model = BayesianRegressor("heteroscedastic_gp", steps=40, num_inducing=50, random_state=0).fit(x, target)
    noise = model.noise_sd(x)
    assert isinstance(noise, pd.Series) and noise.max() > 3 * noise.min()
    np.testing.assert_allclose(model.noise_sd_, np.sqrt(np.square(noise).mean()))
    spread = np.abs(model.sample_y(x[:20], 2000) - model.sample_functions(x[:20], 2000))
    np.testing.assert_allclose(np.median(spread, -1) / 0.6745, noise[:20], rtol=0.2)  # of |z|
    mean, sd = model.predict(x, return_std=True)
    lower, upper = model.predict_interval(x, 0.9)
    assert (sd > noise).all() and 0.8 < ((lower < target) & (target < upper)).mean() < 0.98


def test_the_calibration_of_words_is_that_of_their_numbers():
    above = (X > np.median(X, 0)).sum(1)
    labels = np.array(["no", "maybe", "yes"])[above]
    model = BayesianClassifier(**QUICK).fit(X[:200], labels[:200])
    new, truth = X[200:], labels[200:]
    numbers = np.array([model.classes_.tolist().index(label) for label in truth])
    want = calibration_curve(model.predict_proba(new), numbers, bins=5)
    for given in (truth, truth.tolist(), pd.Series(truth)):
        curve = model.calibration(new, given, bins=5)
        assert curve.counts.equal(want.counts) and curve.error == want.error
        assert int(curve.counts.sum()) == len(new)
    with pytest.raises(ValueError, match=r"does not know: \['never'\]"):
        model.calibration(new, np.where(truth == "no", "never", truth))
    with pytest.raises(ValueError, match=r"does not know: \[None\]"):
        model.calibration(new, [None, *truth[1:]])
    with pytest.raises(ValueError, match="one for each point"):
        model.calibration(new, truth[:-1])
