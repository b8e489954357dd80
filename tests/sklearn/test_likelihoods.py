"""`likelihood=` of the estimators: counts, positive numbers, proportions and outliers, from fit to file."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import gilib
from gilib.sklearn import BayesianClassifier, BayesianRegressor, coverage
from tests.support import seeded

SOURCE = np.random.default_rng(0)
X = SOURCE.uniform(-2, 2, (80, 2))
MEAN = 4.0 * np.exp(np.sin(X[:, 0]))
Y = {
    "student": 50.0 + MEAN + SOURCE.standard_t(2.5, 80),
    "poisson": SOURCE.poisson(MEAN),
    "negative_binomial": SOURCE.negative_binomial(2.0, 2.0 / (2.0 + MEAN)),
    "gamma": 1e5 * SOURCE.gamma(2.0, MEAN / 2.0),
    "beta": SOURCE.beta(MEAN, 4.0),
}
LOWEST = {"student": -np.inf, "beta": 0.0, "gamma": 0.0, "poisson": 0.0, "negative_binomial": 0.0}
QUICK = {"hidden": (10,), "steps": 20, "lr": 0.1, "num_inducing": 20, "random_state": 0}
EVERY = pytest.mark.parametrize("kind", list(Y))


@pytest.fixture(scope="module")
def fitted():
    return {kind: BayesianRegressor(**QUICK, likelihood=kind).fit(X, y) for kind, y in Y.items()}


@EVERY
def test_predictions_are_of_its_kind(fitted, kind):
    model, y = fitted[kind], Y[kind]
    mean, sd, low, high = model.predict(X, return_std=True, return_interval=0.9)
    np.testing.assert_array_equal(model.predict_interval(X, 0.9)[0], low)
    assert mean.shape == sd.shape == low.shape == (80,) and (sd > 0).all()
    assert (low >= LOWEST[kind]).all() and (low <= high).all() and (kind != "beta" or (high <= 1).all())
    assert 0.75 <= coverage(model, X, y).table["inside"]["all"] <= 1.0
    if kind in ("poisson", "negative_binomial"):
        assert (low == low.round()).all() and (high == high.round()).all()
    assert model.log_prob(X, y).shape == (80,) and np.isfinite(model.log_prob(X, y)).all()
    assert model.noise_sd_.shape == (1,) and model.noise_sd(X).shape == (80,)


@EVERY
def test_samples_follow_the_prediction(fitted, kind):
    """Of many functions: their distribution at a point is the mixture's; without noise, its mean."""
    model = fitted[kind].set_params(num_samples=500)
    samples = model.sample_y(X[:1], 500)[0]
    for share in (0.5, 0.8, 0.98):
        low, high = model.predict_interval(X[:1], share)
        inside, least = ((low <= samples) & (samples <= high)).mean(), share
        assert inside >= least - 8 * np.sqrt(least * (1 - least) / 500)  # both are of five hundred functions
        if kind not in ("poisson", "negative_binomial"):  # whole numbers cover more
            assert inside <= least + 8 * np.sqrt(least * (1 - least) / 500)
    means = model.sample_functions(X[:1], 500)[0]
    gap = abs(means.mean() - model.predict(X[:1])[0])
    assert gap <= 6 * means.std() * np.sqrt(2 / 500)
    model.set_params(num_samples=100)


@pytest.mark.parametrize("kind", ["student", "negative_binomial"])
def test_files_pickles_and_frames(fitted, kind, tmp_path):
    model = fitted[kind]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X[:5]), model.predict(X[:5]))
    path = tmp_path / "model.pt"
    gilib.save(path, model.net_, model.likelihood_, normalisation=model.normalisation_)
    kept = gilib.load(path)
    settings = {"normalisation": kept.normalisation, "generator": seeded(model.seed_)}
    found = gilib.predict(kept.network, kept.likelihood, X[:5], **settings)
    np.testing.assert_allclose(found.mean[:, 0], model.predict(X[:5]), rtol=1e-12)
    frame, series = pd.DataFrame(X, columns=["a", "b"]), pd.Series(Y[kind], name="y")
    named = BayesianRegressor(**QUICK | {"steps": 2}, likelihood=kind).fit(frame, series)
    assert named.predict(frame).name == "y"


def test_units_of_positive_numbers_do_not_matter(fitted):
    """A gamma's mean is that of the data, so that cents are euros."""
    first, second = fitted["gamma"], BayesianRegressor(**QUICK, likelihood="gamma").fit(X, 1e-9 * Y["gamma"])
    np.testing.assert_allclose(second.predict(X), 1e-9 * first.predict(X), rtol=1e-3)
    assert second.elbo_ == pytest.approx(first.elbo_ + 9 * np.log(10), abs=1e-3)


def test_several_outputs_and_a_constant_count():
    both = np.stack([Y["poisson"], np.zeros(80)], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BayesianRegressor(**QUICK | {"steps": 40}, likelihood="poisson").fit(X, both)
    mean, low, high = model.predict(X, return_interval=0.9)
    assert mean.shape == (80, 2) and (high[:, 1] == 0).all() and (mean[:, 1] < 0.5).all()
    assert model.log_prob(X, both).shape == (80,) and model.sample_y(X, 2).shape == (80, 2, 2)


def test_other_models():
    """A sparse process, a deep one, and "auto", which leaves out what has noise that is Gaussian; recipes."""
    quick = QUICK | {"steps": 3, "likelihood": "poisson", "num_inducing": 8}
    for model in ("gp", "deep_gp"):
        found = BayesianRegressor(model, **quick | {"hidden": None}).fit(X[:40], Y["poisson"][:40])
        assert (found.predict_interval(X)[0] >= 0).all()
    chosen = BayesianRegressor("auto", **quick).fit(X[:40], Y["poisson"][:40])
    assert "heteroscedastic_gp" not in chosen.elbos_ and {"gp", "network"} < set(chosen.elbos_)
    recipe = gilib.recommended("network", likelihood="gamma", steps=5, hidden=(5,))
    model = BayesianRegressor(recipe=recipe, random_state=0).fit(X, Y["gamma"])
    assert type(model.likelihood_) is gilib.likelihoods.Gamma and (model.predict_interval(X)[0] > 0).all()
    x, y = torch.from_numpy(X).float(), torch.from_numpy(Y["poisson"])[:, None]
    recipe = gilib.recommended("network", likelihood="poisson", steps=5)
    net, likelihood, history = recipe.train(x, y, seed=[0, 1])
    assert history.elbo.shape == (5, 2) and gilib.predict(net, likelihood, x, 3).mean.shape == (2, 80, 1)


def test_outliers_do_not_move_it():
    """A tenth of the targets is thrown far away; the mean of a Gaussian follows, that of a t hardly."""
    far = Y["student"].copy()
    far[::10] += 200.0
    errors = {}
    for kind in ("student", "gaussian"):
        model = BayesianRegressor(**QUICK | {"steps": 40}, likelihood=kind).fit(X, far)
        errors[kind] = np.abs(model.predict(X) - 50.0 - MEAN).mean()
    assert errors["student"] < 0.5 * errors["gaussian"]


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"likelihood": "poisson"}, Y["poisson"] - 1, "Poisson wants counts .* the first of these is -1"),
        ({"likelihood": "student"}, np.ones(80), "likelihood='student' wants targets that vary"),
        ({"likelihood": "cauchy"}, Y["gamma"], "unknown likelihood 'cauchy': choose one of 'gaussian'"),
        ({"likelihood": "gamma", "target": "log"}, Y["gamma"], "target='log' puts Gaussian .* only one"),
        ({"likelihood": "poisson", "model": "heteroscedastic_gp"}, Y["poisson"], "has Gaussian noise.* use"),
    ],
)
def test_what_is_refused_before_any_work(settings, y, message):
    with pytest.raises(ValueError, match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        BayesianRegressor(steps=10**6, **settings).fit(X, y)


def test_what_is_refused_afterwards(fitted):
    wanted = "calibrate stretches Gaussians, .* likelihood='poisson' are not Gaussian"
    with pytest.raises(ValueError, match=wanted):
        fitted["poisson"].calibrate(X, Y["poisson"])
    recipe = gilib.recommended("network", likelihood="poisson", steps=5)
    with pytest.raises(ValueError, match="likelihood='poisson' is for numbers: of classes, leave it out"):
        BayesianClassifier(recipe=recipe).fit(X, Y["poisson"] > 3)
