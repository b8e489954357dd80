"""What the estimators learn and predict: against the library's own functions, in the units of the data."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gilib
from gilib.metrics import calibration_curve
from gilib.sklearn import BayesianClassifier, BayesianRegressor
from tests.support import seeded

QUICK = {"hidden": (10,), "steps": 30, "lr": 0.1, "num_samples": 20, "random_state": 0}
NOISE = np.array([0.1, 50.0])  # of two outputs in different units


def regression(seed=1, points=300):
    rng = np.random.default_rng(seed)
    x = 100 + 20 * rng.normal(size=(points, 2))
    u = (x - 100) / 20
    y = np.stack([u[:, 0], 1000 * u[:, 1] + 500], 1) + NOISE * rng.normal(size=(points, 2))
    return x, y


X, Y = regression()
LABELS = np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [90, 110])]


@pytest.fixture(scope="module")
def model():
    return BayesianRegressor(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return BayesianClassifier(**QUICK).fit(X, LABELS)


def test_predictions_are_those_of_the_library_and_the_bound_is_in_original_units(model):
    """Targets ten times as large: every density is a tenth per output, and the training is the same."""
    settings = {"normalisation": model.normalisation_, "generator": seeded()}
    own = gilib.predict(model.net_, model.likelihood_, torch.from_numpy(X), 20, **settings)
    for value, expected in zip(model.predict(X, return_std=True), (own.mean, own.sd), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(model.log_prob(X, Y), own.log_prob(torch.from_numpy(Y)), rtol=1e-10)
    other = BayesianRegressor(**QUICK).fit(X, 10 * Y)
    assert other.elbo_ == pytest.approx(model.elbo_ - 2 * np.log(10), abs=1e-4)


def test_classes_of_words(classifier):
    assert classifier.classes_.tolist() == ["low", "mid", "top"]
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    assert (classifier.predict(X) == classifier.classes_[probabilities.argmax(1)]).all()
    assert classifier.score(X, LABELS) > 0.9
    entropy = -(probabilities * np.log(probabilities.clip(1e-300))).sum(1)
    np.testing.assert_allclose(classifier.predict_entropy(X), entropy, atol=1e-9)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), probabilities, rtol=1e-12)
    own = probabilities[np.arange(len(X)), np.searchsorted(classifier.classes_, LABELS)]
    np.testing.assert_allclose(np.exp(classifier.log_prob(X, LABELS)), own, rtol=1e-12)
    with pytest.raises(ValueError, match="labels that the classifier does not know"):
        classifier.log_prob(X, np.full(len(X), "none"))
    with pytest.raises(ValueError, match="y has 3 labels for 300 rows of X"):
        classifier.log_prob(X, LABELS[:3])


def test_a_pipeline_gives_intervals():
    """It hands arguments of `predict` on, and those of no other method."""
    pipe = make_pipeline(StandardScaler(), BayesianRegressor(**(QUICK | {"steps": 5}))).fit(X, Y)
    own, x = pipe[1], pipe[0].transform(X[:5])
    wanted = *own.predict(x, return_std=True), *own.predict_interval(x, 0.8)
    found = pipe.predict(X[:5], return_std=True, return_interval=0.8)
    for value, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_samples_have_the_moments_of_the_prediction(model):
    samples = model.sample_y(X[:4], 4000, random_state=1)
    assert samples.shape == (4, 2, 4000)
    mean, sd = model.set_params(num_samples=4000).predict(X[:4], return_std=True)
    model.set_params(num_samples=20)
    assert (np.abs(samples.mean(-1) - mean) < 6 * sd * np.sqrt(2 / 4000)).all()
    np.testing.assert_allclose(samples.std(-1), sd, rtol=6 / np.sqrt(2 * 4000) * 1.5)


def test_samples_of_classes_follow_the_probabilities(classifier):
    """A share of 4000 draws has a standard error of at most 0.008; the functions are 4000 others, too."""
    near = X[np.argsort(classifier.predict_entropy(X))[-3:]]
    samples = classifier.sample_y(near, 4000, random_state=3)
    assert samples.shape == (3, 4000)
    probabilities = classifier.set_params(num_samples=4000).predict_proba(near)
    classifier.set_params(num_samples=20)
    for k, label in enumerate(classifier.classes_):
        assert (np.abs((samples == label).mean(1) - probabilities[:, k]) < 6 * np.sqrt(2) * 0.008).all()


def test_pandas_in_pandas_out():
    x = pd.DataFrame(X, columns=["heat", "load"], index=range(1000, 1300))
    y = pd.DataFrame(Y, columns=["a", "b"], index=x.index)
    model = BayesianRegressor(**(QUICK | {"steps": 5})).fit(x, y)
    assert model.feature_names_in_.tolist() == ["heat", "load"]
    mean, sd = model.predict(x, return_std=True)
    for frame in (mean, sd, *model.predict_interval(x)):
        assert list(frame.columns) == ["a", "b"] and frame.index.equals(x.index)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        assert type(model.predict(X)) is np.ndarray
    series = model.fit(x, y["a"]).predict(x)
    assert series.name == "a" and series.index.equals(x.index)
    labels = pd.Series(LABELS, index=x.index, name="kind")
    classifier = BayesianClassifier(**(QUICK | {"steps": 5})).fit(x, labels)
    assert classifier.predict(x).name == "kind" and type(classifier.predict_proba(x)) is np.ndarray
    assert type(model.fit(X, Y).predict(X)) is np.ndarray
    with pytest.raises(ValueError, match="feature names should match"):
        model.fit(x, y).predict(x[["load", "heat"]])


def test_auto_keeps_the_best_bound_and_leaves_out_what_cannot_be_trained(monkeypatch):
    quick = {"steps": 3, "num_inducing": 5, "random_state": 0}
    model = BayesianRegressor("auto", **quick).fit(X[:60], Y[:60, 0])
    assert set(model.elbos_) == {"network", "gp", "heteroscedastic_gp", "deep_gp"}
    assert model.elbo_ == max(model.elbos_.values()) == model.elbos_[model.model_]
    assert set(model.histories_) == set(model.elbos_) and model.histories_[model.model_] is model.history_
    alone = BayesianRegressor(model.model_, **quick).fit(X[:60], Y[:60, 0])
    assert np.array_equal(alone.predict(X), model.predict(X))

    def refuse(*args):
        raise ValueError("not today")

    monkeypatch.setattr(gilib.recipes.ProcessRecipe, "_train", refuse)
    with pytest.warns(UserWarning, match="gp cannot be trained and is left out: not today"):
        model.fit(X[:60], Y[:60])
    assert set(model.elbos_) == {"network", "deep_gp", "heteroscedastic_gp"} and model.model_ in model.elbos_
    with pytest.raises(ValueError, match="not today"):
        BayesianRegressor("gp", steps=5).fit(X, Y)


def test_a_recipe_of_ones_own():
    recipe = gilib.recipes.NetworkRecipe(steps=3, hidden=(4, 4), prior=gilib.ScalePrior())
    model = BayesianRegressor(recipe=recipe, random_state=0).fit(X, Y)
    assert model.n_iter_ == 3 and model.model_ == "NetworkRecipe" and not model.converged_


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"model": "tree"}, ValueError, "unknown model 'tree': choose one of 'network', .*, 'auto'"),
        ({"hidden": 50}, TypeError, r"hidden must be a sequence of widths, got 50: write \(50,\)"),
        ({"hidden": (5, 0)}, ValueError, r"hidden\[1\] must be an integer of at least 1"),
        ({"lr": -1}, ValueError, "lr must be a positive finite number"),
        ({"recipe": "quick"}, TypeError, "recipe must be a Recipe, got str"),
    ],
)
def test_settings_are_checked_before_work_starts(settings, error, message, monkeypatch):
    monkeypatch.setattr(gilib.recipes.Recipe, "train", lambda *_, **__: pytest.fail("work has started"))
    with pytest.raises(error, match=message):
        BayesianRegressor(**settings).fit(X, Y)


def test_other_mistakes(model):
    for wrong in (1, 90, "90", 1 - 1.1e-16):
        with pytest.raises(ValueError, match=f"coverage must be between 0 and 1, got {wrong!r}"):
            model.predict_interval(X, wrong)
    assert np.isfinite(model.predict_interval(X[:3], 1 - 3e-16)).all()
    with pytest.raises(ValueError, match="labels must be of one type, but y has int, str: use y.astype"):
        BayesianClassifier().fit(X, np.array([0, "a"] * (len(X) // 2), dtype=object))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        BayesianClassifier().fit(X, Y[:, 0])


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


def test_a_process_is_as_sure_as_labels_left_out_allow():
    """Its logits are divided by a temperature, and new labels are likelier; those of a network stay."""
    labels = (X > np.median(X, 0)).sum(1)
    model = BayesianClassifier(steps=20, num_inducing=20, random_state=0).fit(X[:100], labels[:100])
    sharp, last = model.log_prob(X[200:], labels[200:]).mean(), model.net_.layers[-1]
    error = model.calibration(X[200:], labels[200:]).error
    last.matrix *= model.temperature_
    torch.testing.assert_close(last.matrix @ last.matrix.mT, torch.eye(2, dtype=last.matrix.dtype))
    assert model.temperature_ < 0.7
    assert sharp > model.log_prob(X[200:], labels[200:]).mean() + 0.004
    assert error < model.calibration(X[200:], labels[200:]).error
    assert BayesianClassifier("network", **QUICK).fit(X[:50], labels[:50]).temperature_ == 1.0
    model.fit((n := np.arange(200))[:, None] % 2, (n + (n % 20 < 2)) % 2)  # nine of ten labels are the input
    assert model.temperature_ == 1.0
    np.testing.assert_allclose(model.predict_proba([[0], [1]])[:, 1], (0.1, 0.9), atol=0.1)
    with pytest.warns(UserWarning, match="divided by 16, the most .* weights that"):
        model.fit(X[:40], n[:40] % 2, sample_weight=np.full(40, 20))


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
