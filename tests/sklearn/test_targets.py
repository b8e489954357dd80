"""Targets that are logarithms, constant, counts, positive, proportions or outliers, from fit to file."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import lognorm, norm

import gilib
from gilib.sklearn import BayesianClassifier, BayesianRegressor, coverage
from gilib.sklearn.targets import LogNormalPrediction
from tests.support import seeded

QUICK = {"hidden": (5,), "steps": 10, "num_samples": 10, "random_state": 0}
rng = np.random.default_rng(0)
X = rng.normal(size=(80, 2))
LOGS = np.stack([X[:, 0] + 0.5 * rng.normal(size=80), 3 + X[:, 1] + 0.2 * rng.normal(size=80)], 1)
Y = np.exp(LOGS)
M, S = np.array([0.3, -1.0, 2.0]), np.array([0.5, 1.0, 0.2])


def mixture(m, s):
    column = [torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (m, s)]
    return LogNormalPrediction(*column)


def test_one_component_is_scipys():
    own, dist = mixture(M[:1], S[:1]), lognorm(s=S[0], scale=np.exp(M[0]))
    np.testing.assert_allclose([own.mean.item(), own.sd.item()], [dist.mean(), dist.std()], rtol=1e-12)
    assert own.function_sd.item() == 0
    for p in (0.001, 0.05, 0.5, 0.95):
        np.testing.assert_allclose(own.quantile(p).item(), dist.ppf(p), rtol=1e-10)
    for y in (-1.0, 0.0, 0.01, 1.0, 7.0):
        target = torch.tensor([[y]], dtype=torch.float64)
        np.testing.assert_allclose(own.log_prob(target).item(), dist.logpdf(y), rtol=1e-12)


def test_a_mixture_has_the_moments_of_its_density():
    own = mixture(M, S)

    def density(y):
        return own.log_prob(torch.tensor([[y]], dtype=torch.float64)).exp().item()

    total, mean, square = (quad(lambda y, k=k: y**k * density(y), 0, 200, limit=400)[0] for k in range(3))
    np.testing.assert_allclose(total, 1, rtol=1e-6)
    np.testing.assert_allclose(own.mean.item(), mean, rtol=1e-6)
    np.testing.assert_allclose(own.sd.item(), np.sqrt(square - mean**2), rtol=1e-5)
    laws = [lognorm(s=s, scale=np.exp(m)) for m, s in zip(M, S, strict=True)]
    np.testing.assert_allclose(own.function_sd.item(), np.std([law.mean() for law in laws]))
    at = own.quantile(0.2).item()
    np.testing.assert_allclose(np.mean([law.cdf(at) for law in laws]), 0.2)


@pytest.fixture(scope="module")
def both():
    """A model of targets, and one that is handed their logarithms."""
    own = BayesianRegressor(**QUICK, target="log").fit(X, Y)
    return own, BayesianRegressor(**QUICK).fit(X, LOGS)


def test_it_is_the_model_of_the_logarithms(both):
    own, logs = both
    for one, other in zip(own.predict_interval(X, 0.8), logs.predict_interval(X, 0.8), strict=True):
        np.testing.assert_allclose(one, np.exp(other), rtol=1e-9)
        assert (one > 0).all()
    np.testing.assert_allclose(own.log_prob(X, Y), logs.log_prob(X, LOGS) - LOGS.sum(1), rtol=1e-9)
    assert own.elbo_ == pytest.approx(logs.elbo_ - LOGS.sum(1).mean()) == own.elbos_["network"]
    np.testing.assert_allclose(own.sample_y(X, 3), np.exp(logs.sample_y(X, 3)), rtol=1e-9)
    np.testing.assert_allclose(own.sample_functions(X, 3), np.exp(logs.sample_functions(X, 3)), rtol=1e-9)
    np.testing.assert_allclose(own.noise_sd_, logs.noise_sd_, rtol=1e-9)


def test_it_is_calibrated_in_logarithms(both):
    own, logs = (pickle.loads(pickle.dumps(model)) for model in both)
    new = np.random.default_rng(1).normal(size=(30, 2))
    targets = np.exp(new + np.random.default_rng(2).standard_t(3, size=(30, 2)))
    own.calibrate(new, targets)
    np.testing.assert_allclose(own.stretch_, logs.calibrate(new, np.log(targets)).stretch_)
    assert (own.predict_interval(X, 0.999)[0] > 0).all()
    np.testing.assert_allclose(own.sample_y(X[:2], 3), np.exp(logs.sample_y(X[:2], 3)), rtol=1e-9)
    with pytest.raises(ValueError, match="target='log' wants positive targets, but 30 of y are not"):
        own.calibrate(new, np.stack([-targets[:, 0], targets[:, 1]], 1))


def test_what_has_no_logarithm_is_refused():
    with pytest.raises(ValueError, match="wants positive targets, but 2 of y are not, the lowest -1"):
        BayesianRegressor(**QUICK, target="log").fit(X, np.r_[0.0, -1.0, Y[2:, 0]])
    with pytest.raises(ValueError, match="unknown target 'sqrt': choose one of 'log'"):
        BayesianRegressor(**QUICK, target="sqrt").fit(X, Y)


FEW = X[:24]
FAR = np.array([[0.0, 0.0], [100.0, -100.0]])


def of_few(model, y, **options):
    """Trained for a moment on 24 rows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not read")
        quick = {"steps": 2, "num_inducing": 10, "random_state": 0}
        return BayesianRegressor(model, **quick, **options).fit(FEW, y)


@pytest.mark.filterwarnings("ignore:.*lie far outside")
@pytest.mark.parametrize(
    ("model", "value", "size"), [("auto", 7.0, 7.0), ("gp", -2e9, 2e9), ("network", 0.0, 1.0)]
)
def test_a_constant_is_predicted_and_its_scale_is_not_claimed(model, value, size):
    with pytest.warns(UserWarning, match=r"all targets are the same in outputs \[0\]"):
        found = of_few(model, np.full(24, value))
    mean, sd = found.predict(FAR, return_std=True)
    assert mean.tolist() == [value, value] and sd.tolist() == [size, size]
    np.testing.assert_allclose(found.log_prob(FAR, mean), norm.logpdf(0, scale=size), rtol=1e-12)
    lower, upper = found.predict_interval(FAR, 0.9)
    np.testing.assert_allclose([lower, upper], value + size * norm.ppf([[0.05, 0.05], [0.95, 0.95]]))
    assert (found.sample_functions(FAR, 3) == value).all()
    assert (found.noise_sd(FAR) == size).all() and found.noise_sd_.tolist() == [size]
    drawn = found.sample_y(FAR, 4000) - value
    np.testing.assert_allclose(drawn.std(1), size, rtol=6 / np.sqrt(2 * 4000))


def test_constants_of_other_kinds():
    """Logarithms have a deviation of one; a constant but for rounding; one row tells nothing of a scale."""
    with pytest.warns(UserWarning, match="all targets are the same"):
        model = of_few("network", np.full(24, 1e6), target="log")
    dist, found = lognorm(s=1, scale=1e6), model.predict(FEW[:1], return_interval=0.5)
    np.testing.assert_allclose(np.concatenate(found), [dist.mean(), *dist.ppf([0.25, 0.75])])
    y = np.where(np.arange(24) % 2, 0.3, 0.1 + 0.2)
    assert len(set(y)) == 2
    with pytest.warns(UserWarning, match="all targets are the same"):
        assert of_few("gp", y).predict(FEW[:1], return_std=True)[1].tolist() == [min(y)]
    with pytest.raises(ValueError, match="X has 1 sample, and one target tells nothing about the scale"):
        BayesianRegressor("gp").fit([[3.0]], [7.0])


@pytest.mark.parametrize("model", ["network", "heteroscedastic_gp"])
def test_constant_outputs_leave_the_others_as_they_are(model):
    varied = np.stack([FEW[:, 0], 3 * FEW[:, 1]], 1)
    y = pd.DataFrame({"a": varied[:, 0], "same": 7.0, "b": varied[:, 1]})
    with pytest.warns(UserWarning, match=r"outputs \['same'\]"):
        found = of_few(model, y)
    alone, y = of_few(model, varied), y.to_numpy()
    for own, other in zip(found.predict(FEW, True), alone.predict(FEW, True), strict=True):
        assert own.shape == (24, 3) and (own[:, 1] == 7.0).all()
        np.testing.assert_allclose(own[:, [0, 2]], other, rtol=1e-12)
    assert found.elbo_ == alone.elbo_
    np.testing.assert_allclose(found.noise_sd_[[0, 2]], alone.noise_sd_)
    np.testing.assert_allclose(found.noise_sd(FEW)[:, [0, 2]], alone.noise_sd(FEW))
    assert found.noise_sd_[1] == 7.0 and (found.noise_sd(FEW)[:, 1] == 7.0).all()
    np.testing.assert_allclose(found.sample_functions(FEW, 2)[:, [0, 2]], alone.sample_functions(FEW, 2))
    np.testing.assert_allclose(found.log_prob(FEW, y) - alone.log_prob(FEW, varied), norm.logpdf(0, scale=7))
    assert found.sample_y(FEW, 5).shape == (24, 3, 5)


def said(y, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BayesianRegressor(**(QUICK | {"steps": 1}), **options).fit(X, y)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (pd.Series(Y[:, 0], name="price"), "column 'price' of y holds positive numbers only"),
        (np.arange(80) % 4, "column 0 of y holds only 4 different numbers, all whole, but a Gaussian"),
        (np.where(X[:, 0] > -0.6, X[:, 1], 0.0), "column 0 of y is 0 in 30% of the rows, but no Gaussian"),
    ],
)
def test_a_gaussian_that_cannot_be_right_is_warned_of(y, words):
    (message,) = said(y)
    assert re.match(words, message), message


def test_other_targets_bring_no_warning():
    """Gaussian, positive and far from zero, whole numbers that are many, logarithms, ten rows."""
    for y in (X[:, 0], 20 + np.exp(X[:, 0]), np.arange(80) - 40, -Y[:, 0]):
        assert said(y) == []
    assert said(Y[:, 0], target="log") == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianRegressor(**QUICK).fit(X[:10], np.arange(10) % 2)


SOURCE = np.random.default_rng(0)
PLACES = SOURCE.uniform(-2, 2, (80, 2))
MEAN = 4.0 * np.exp(np.sin(PLACES[:, 0]))
DATA = {
    "student": 50.0 + MEAN + SOURCE.standard_t(2.5, 80),
    "poisson": SOURCE.poisson(MEAN),
    "negative_binomial": SOURCE.negative_binomial(2.0, 2.0 / (2.0 + MEAN)),
    "gamma": 1e5 * SOURCE.gamma(2.0, MEAN / 2.0),
    "beta": SOURCE.beta(MEAN, 4.0),
}
LOWEST = {"student": -np.inf, "beta": 0.0, "gamma": 0.0, "poisson": 0.0, "negative_binomial": 0.0}
SHORT = {"hidden": (10,), "steps": 20, "lr": 0.1, "num_inducing": 20, "random_state": 0}
EVERY = pytest.mark.parametrize("kind", list(DATA))


@pytest.fixture(scope="module")
def fitted():
    return {kind: BayesianRegressor(**SHORT, likelihood=kind).fit(PLACES, y) for kind, y in DATA.items()}


@EVERY
def test_predictions_are_of_its_kind(fitted, kind):
    model, y = fitted[kind], DATA[kind]
    mean, sd, low, high = model.predict(PLACES, return_std=True, return_interval=0.9)
    np.testing.assert_array_equal(model.predict_interval(PLACES, 0.9)[0], low)
    assert mean.shape == sd.shape == low.shape == (80,) and (sd > 0).all()
    assert (low >= LOWEST[kind]).all() and (low <= high).all() and (kind != "beta" or (high <= 1).all())
    assert 0.75 <= coverage(model, PLACES, y).table["inside"]["all"] <= 1.0
    if kind in ("poisson", "negative_binomial"):
        assert (low == low.round()).all() and (high == high.round()).all()
    assert model.log_prob(PLACES, y).shape == (80,) and np.isfinite(model.log_prob(PLACES, y)).all()
    assert model.noise_sd_.shape == (1,) and model.noise_sd(PLACES).shape == (80,)


@EVERY
def test_samples_follow_the_prediction(fitted, kind):
    """Of many functions: their distribution at a point is the mixture's; without noise, its mean."""
    model = fitted[kind].set_params(num_samples=500)
    samples = model.sample_y(PLACES[:1], 500)[0]
    for share in (0.5, 0.8, 0.98):
        low, high = model.predict_interval(PLACES[:1], share)
        inside, least = ((low <= samples) & (samples <= high)).mean(), share
        assert inside >= least - 8 * np.sqrt(least * (1 - least) / 500)  # both are of five hundred functions
        if kind not in ("poisson", "negative_binomial"):  # whole numbers cover more
            assert inside <= least + 8 * np.sqrt(least * (1 - least) / 500)
    means = model.sample_functions(PLACES[:1], 500)[0]
    gap = abs(means.mean() - model.predict(PLACES[:1])[0])
    assert gap <= 6 * means.std() * np.sqrt(2 / 500)
    model.set_params(num_samples=100)


@pytest.mark.parametrize("kind", ["student", "negative_binomial"])
def test_files_pickles_and_frames(fitted, kind, tmp_path):
    model = fitted[kind]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(PLACES[:5]), model.predict(PLACES[:5]))
    path = tmp_path / "model.pt"
    gilib.save(path, model.net_, model.likelihood_, normalisation=model.normalisation_)
    kept = gilib.load(path)
    settings = {"normalisation": kept.normalisation, "generator": seeded(model.seed_)}
    found = gilib.predict(kept.network, kept.likelihood, PLACES[:5], **settings)
    np.testing.assert_allclose(found.mean[:, 0], model.predict(PLACES[:5]), rtol=1e-12)
    frame, series = pd.DataFrame(PLACES, columns=["a", "b"]), pd.Series(DATA[kind], name="y")
    named = BayesianRegressor(**SHORT | {"steps": 2}, likelihood=kind).fit(frame, series)
    assert named.predict(frame).name == "y"


def test_units_of_positive_numbers_do_not_matter(fitted):
    """A gamma's mean is that of the data, so that cents are euros."""
    first, second = (
        fitted["gamma"],
        BayesianRegressor(**SHORT, likelihood="gamma").fit(PLACES, 1e-9 * DATA["gamma"]),
    )
    np.testing.assert_allclose(second.predict(PLACES), 1e-9 * first.predict(PLACES), rtol=1e-3)
    assert second.elbo_ == pytest.approx(first.elbo_ + 9 * np.log(10), abs=1e-3)


def test_several_outputs_and_a_constant_count():
    both = np.stack([DATA["poisson"], np.zeros(80)], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BayesianRegressor(**SHORT | {"steps": 40}, likelihood="poisson").fit(PLACES, both)
    mean, low, high = model.predict(PLACES, return_interval=0.9)
    assert mean.shape == (80, 2) and (high[:, 1] == 0).all() and (mean[:, 1] < 0.5).all()
    assert model.log_prob(PLACES, both).shape == (80,) and model.sample_y(PLACES, 2).shape == (80, 2, 2)


def test_other_models():
    """A sparse process, a deep one, and "auto", which leaves out what has noise that is Gaussian; recipes."""
    quick = SHORT | {"steps": 3, "likelihood": "poisson", "num_inducing": 8}
    for model in ("gp", "deep_gp"):
        found = BayesianRegressor(model, **quick | {"hidden": None}).fit(PLACES[:40], DATA["poisson"][:40])
        assert (found.predict_interval(PLACES)[0] >= 0).all()
    chosen = BayesianRegressor("auto", **quick).fit(PLACES[:40], DATA["poisson"][:40])
    assert "heteroscedastic_gp" not in chosen.elbos_ and {"gp", "network"} < set(chosen.elbos_)
    recipe = gilib.recommended("network", likelihood="gamma", steps=5, hidden=(5,))
    model = BayesianRegressor(recipe=recipe, random_state=0).fit(PLACES, DATA["gamma"])
    assert (
        type(model.likelihood_) is gilib.likelihoods.Gamma and (model.predict_interval(PLACES)[0] > 0).all()
    )
    x, y = torch.from_numpy(PLACES).float(), torch.from_numpy(DATA["poisson"])[:, None]
    recipe = gilib.recommended("network", likelihood="poisson", steps=5)
    net, likelihood, history = recipe.train(x, y, seed=[0, 1])
    assert history.elbo.shape == (5, 2) and gilib.predict(net, likelihood, x, 3).mean.shape == (2, 80, 1)


def test_outliers_do_not_move_it():
    """A tenth of the targets is thrown far away; the mean of a Gaussian follows, that of a t hardly."""
    far = DATA["student"].copy()
    far[::10] += 200.0
    errors = {}
    for kind in ("student", "gaussian", gilib.likelihoods.StudentT):
        model = BayesianRegressor(**SHORT | {"steps": 40}, likelihood=kind).fit(PLACES, far)
        errors[kind] = np.abs(model.predict(PLACES) - 50.0 - MEAN).mean()
    assert errors["student"] == errors[gilib.likelihoods.StudentT] < 0.5 * errors["gaussian"]


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"likelihood": "poisson"}, DATA["poisson"] - 1, "Poisson wants counts .* the first of these is -1"),
        ({"likelihood": "student"}, np.ones(80), "likelihood='student' wants targets that vary"),
        ({"likelihood": "cauchy"}, DATA["gamma"], "unknown likelihood 'cauchy': choose one of 'gaussian'"),
        ({"likelihood": gilib.likelihoods.Poisson}, DATA["poisson"] - 1, "Poisson wants counts .* is -1"),
        ({"likelihood": gilib.Gaussian}, DATA["gamma"], "a subclass of .* whose noise is another"),
        ({"likelihood": "gamma", "target": "log"}, DATA["gamma"], "target='log' puts Gaussian .* only one"),
        ({"likelihood": "poisson", "model": "heteroscedastic_gp"}, DATA["poisson"], "Gaussian noise.* use"),
    ],
)
def test_what_is_refused_before_any_work(settings, y, message):
    with pytest.raises((TypeError, ValueError), match=message), warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianRegressor(steps=10**6, **settings).fit(PLACES, y)


def test_what_is_refused_afterwards(fitted):
    wanted = "calibrate stretches Gaussians, .* likelihood='poisson' are not Gaussian"
    with pytest.raises(ValueError, match=wanted):
        fitted["poisson"].calibrate(PLACES, DATA["poisson"])
    recipe = gilib.recommended("network", likelihood="poisson", steps=5)
    with pytest.raises(ValueError, match="likelihood='poisson' is for numbers: of classes, leave it out"):
        BayesianClassifier(recipe=recipe).fit(PLACES, DATA["poisson"] > 3)
