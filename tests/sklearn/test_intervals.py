"""Coverage counted by hand, and the conformal factor by its definition."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import gilib
from gilib.likelihoods.mixtures import GaussianPrediction
from gilib.sklearn import BayesianRegressor, coverage
from tests.support import seeded

QUICK = {"hidden": (5,), "steps": 10, "num_samples": 10, "random_state": 0}
rng = np.random.default_rng(0)
X = rng.normal(size=(90, 2))
Y = np.stack([X[:, 0] + 0.3 * rng.normal(size=90), 50 * X[:, 1] + 5 * rng.normal(size=90)], 1)
FRAME = pd.DataFrame(X, columns=["size", "age"]).assign(kind=np.where(X[:, 0] > 0.5, "big", "small"))
FRAME.loc[:9, "kind"] = None
FRAME.loc[20:24, "size"] = np.nan
WHOLE = pd.DataFrame(X, columns=["size", "age"])


class Fixed:
    """Predicts zero, and that a target is within 1, or within 2 where age is positive."""

    def predict(self, X, return_interval):
        half = np.where(X["age"] > 0, 2.0, 1.0)
        return tuple(pd.Series(value, X.index) for value in (X["age"], -half, half))


def by_hand(members):
    """Rows, and the share of Y's first column within the intervals of `Fixed`."""
    hits = [abs(Y[n, 0]) <= (2.0 if X[n, 1] > 0 else 1.0) for n in members]
    return len(hits), sum(hits) / len(hits)


def check(found, groups):
    assert list(found.table.index) == ["all", *groups]
    for name, members in {"all": range(90), **groups}.items():
        assert tuple(found.table.loc[name, ["rows", "inside"]]) == by_hand(members)


def thirds(column, *parts):
    """Names and rows of parts of a column."""
    return {f"{X[rows[0], column]:.4g} to {X[rows[-1], column]:.4g}": rows for rows in parts}


def test_groups_are_counted_by_hand():
    """Thirds of the prediction or of a column of numbers, ties together; values of others; gaps apart."""
    check(coverage(Fixed(), FRAME, Y[:, 0]), thirds(1, *np.split(np.argsort(X[:, 1]), 3)))
    groups = {w: [n for n in range(90) if FRAME["kind"][n] == w] for w in ("big", "small")}
    groups["missing"] = range(10)
    check(coverage(Fixed(), FRAME, Y[:, 0], by="kind"), groups)
    check(coverage(Fixed(), FRAME.astype({"kind": "category"}), Y[:, 0], by=2), groups)
    order = [n for n in np.argsort(X[:, 0]) if not 20 <= n < 25]
    groups = thirds(0, order[:29], order[29:57], order[57:])  # 28 and a third, as quantiles between rows cut
    check(coverage(Fixed(), FRAME, Y[:, 0], by="size"), groups | {"missing": range(20, 25)})
    frame = FRAME.assign(floor=np.arange(90) % 3, zeros=np.maximum(np.arange(90) - 50, 0))
    check(coverage(Fixed(), frame, Y[:, 0], by="floor"), {str(k): range(k, 90, 3) for k in range(3)})
    check(coverage(Fixed(), frame, Y[:, 0], by="zeros"), {"0 to 9": range(60), "10 to 39": range(60, 90)})


def test_chance_is_the_binomial():
    """The least count with at least 1/40 at or below it, and that with at least 39/40, of 90 and of 30."""
    table = coverage(Fixed(), FRAME, Y[:, 0], coverage=0.8).table
    for name, n in zip(table.index, (90, 30, 30, 30), strict=True):
        pmf = [math.comb(n, k) * 0.8**k * 0.2 ** (n - k) for k in range(n + 1)]
        ends = [next(k for k in range(n + 1) if sum(pmf[: k + 1]) >= p) / n for p in (0.025, 0.975)]
        assert table.loc[name, ["least", "most"]].tolist() == ends


@pytest.fixture(scope="module")
def whole():
    return BayesianRegressor(**QUICK).fit(X[:40], Y[:40])


@pytest.fixture
def fitted(whole):
    return pickle.loads(pickle.dumps(whole))


def test_outputs_have_groups_of_their_own():
    names = ["drift", "wear"]
    frame = pd.DataFrame(Y, columns=names)
    model = BayesianRegressor(**QUICK).fit(WHOLE[:40], frame[:40])
    found = coverage(model, WHOLE[40:], frame[40:][names[::-1]], coverage=0.5)
    mean, low, high = model.predict(WHOLE[40:], return_interval=0.5)
    for name in names:
        inside = (low[name] <= frame[name][40:]) & (frame[name][40:] <= high[name])
        assert found.table.loc[name, "inside"]["all"] == inside.mean()
        thirds = [inside[part].mean() for part in np.array_split(mean[name].sort_values().index, 3)]
        counts = [17, 16, 17]  # of fifty, by quantiles between rows
        assert found.table.loc[name, "rows"].tolist() == [50, *counts] and len(thirds) == 3
    assert "inside" in repr(found) and "<table" in found._repr_html_()
    axes = found.plot(label="quick")
    assert [label.get_text().split()[0] for label in axes.get_yticklabels()] == ["drift"] * 3 + ["wear"] * 3
    points = axes.lines[-1]
    assert points.get_label() == "quick" and len(points.get_xdata()) == 6


def test_what_no_coverage_can_be_of_is_refused(whole):
    with pytest.raises(TypeError, match="LinearRegression predicts no intervals: pass"):
        coverage(LinearRegression().fit(X, Y), X, Y)
    with pytest.raises(ValueError, match=r"by must be 'prediction' or a column .* are \['size', 'age'"):
        coverage(Fixed(), FRAME, Y[:, 0], by="weight")
    for wrong in (2, "size", True, 0.0):
        with pytest.raises(ValueError, match="a column of X, which are the numbers 0 to 1, got"):
            coverage(whole, X, Y, by=wrong)
    with pytest.raises(ValueError, match=r"y must hold \[90, 2\] targets.* got \[90, 1\]"):
        coverage(whole, X, Y[:, 0])
    with pytest.raises(ValueError, match="coverage must be between 0 and 1, got 90"):
        coverage(whole, X, Y, coverage=90)


def ratios(model, x, y, interval):
    """How far targets are from the mean, in parts of the way to the end of the interval."""
    mean, low, high = model.predict(x, return_interval=interval)
    return np.where(y > mean, (y - mean) / (high - mean), (y - mean) / (low - mean))


def test_the_factor_of_ten_rows_by_hand(whole, fitted):
    """⌈11 · 0.8⌉ = 9: the ninth of ten ratios, of every output by itself."""
    mean, sd, low, high = whole.predict(X[50:], return_std=True, return_interval=0.8)
    factor = np.sort(ratios(whole, X[40:50], Y[40:50], 0.8), 0)[8]
    assert fitted.calibrate(X[40:50], Y[40:50], coverage=0.8) is fitted
    np.testing.assert_allclose(fitted.stretch_, factor)
    assert (factor != 1).all() and factor[0] != factor[1]
    found = fitted.predict(X[50:], return_std=True, return_interval=0.8)
    wanted = mean, factor * sd, mean + factor * (low - mean), mean + factor * (high - mean)
    for value, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, expected)
    low, high = fitted.predict_interval(X[40:50], 0.8)
    assert ((low <= Y[40:50] + 1e-9) & (Y[40:50] - 1e-9 <= high)).sum(0).tolist() == [9, 9]
    at = mean + (Y[50:] - mean) / factor  # where the density was before it was stretched
    density = whole.log_prob(X[50:], at) - np.log(factor).sum()
    np.testing.assert_allclose(fitted.log_prob(X[50:], Y[50:]), density)
    samples, before = fitted.sample_y(X[50:52], 3), whole.sample_y(X[50:52], 3)
    np.testing.assert_allclose(samples - mean[:2, :, None], factor[:, None] * (before - mean[:2, :, None]))
    assert np.array_equal(fitted.sample_functions(X[50:52]), whole.sample_functions(X[50:52]))


def test_a_new_target_is_inside_with_the_promised_probability():
    """A factor from 20 rows covers ⌈21 · 0.9⌉ / 21 of new ones on average, whatever the model.

    Its coverage is Beta(19, 2), deviation 0.0625; the mean of 100 has an error of 0.0063.
    """
    draws = np.random.default_rng(1)
    x = draws.normal(size=(4000, 2))
    y = x[:, :1] + draws.standard_t(3, size=(4000, 1))
    model = BayesianRegressor(**QUICK).fit(X[:40], Y[:40, :1])  # its noise is far too small
    away = ratios(model, x, y, 0.9)[:, 0]
    shares = []
    for part in range(100):
        rows = slice(20 * part, 20 * part + 20)
        model.calibrate(x[rows], y[rows])
        shares.append((away[2000:] <= model.stretch_[0]).mean())
    assert abs(np.mean(shares) - 19 / 21) < 6 * 0.0063
    assert (away[2000:] <= 1).mean() < 0.6


def test_pickles_keep_the_factor_and_a_fit_forgets_it(whole, fitted):
    stretch = fitted.calibrate(X[40:], Y[40:]).stretch_
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_interval(X), fitted.predict_interval(X))
    np.testing.assert_allclose(fitted.calibrate(X[40:], Y[40:]).stretch_, stretch)  # once, not twice
    fitted.fit(X[:40], Y[:40])
    assert fitted.stretch_.tolist() == [1, 1] and fitted.normalisation_.y_stretch is None
    assert np.array_equal(whole.predict_interval(X), fitted.predict_interval(X))


@pytest.mark.parametrize("settings", [QUICK, {"model": "heteroscedastic_gp", "steps": 3, "random_state": 0}])
def test_files_keep_what_calibrate_found(settings, tmp_path):
    """And what was stretched stays so, for functions that differ and for noise that does."""
    model = BayesianRegressor(**settings).fit(X[:40], Y[:40])
    plain = model.predict(X[40:], return_std=True)[1]
    mean, sd, low, high = model.calibrate(X[40:], Y[40:]).predict(X[40:], True, 0.9)
    assert not np.allclose(sd, plain)
    gilib.save(tmp_path / "model", model.net_, model.likelihood_, normalisation=model.normalisation_)
    kept, draws = gilib.load(tmp_path / "model"), model._recipe.enough(model.num_samples)
    settings = {"normalisation": kept.normalisation, "generator": seeded(model.seed_)}
    found = gilib.predict(kept.network, kept.likelihood, X[40:], draws, **settings)
    values = found.mean, found.sd, found.quantile(0.05), found.quantile(0.95)
    for value, expected in zip(values, (mean, sd, low, high), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_a_constant_output_keeps_its_width():
    with pytest.warns(UserWarning, match="all targets are the same"):
        model = BayesianRegressor(**QUICK).fit(X[:40], np.stack([Y[:40, 0], np.full(40, 3.0)], 1))
    model.calibrate(X[40:], np.stack([Y[40:, 0], np.full(50, 3.0)], 1))
    assert model.stretch_[1] == 1 != model.stretch_[0]


def test_what_cannot_calibrate_is_refused_and_changes_nothing(fitted):
    with pytest.raises(ValueError, match="intervals of 0.9 need at least 9 rows to calibrate with, got 8"):
        fitted.calibrate(X[40:48], Y[40:48])
    with pytest.raises(ValueError, match="coverage must be between 0 and 1, got 1"):
        fitted.calibrate(X[40:], Y[40:], coverage=1)
    with pytest.raises(ValueError, match="NaN"):
        fitted.calibrate(X[40:], np.full((50, 2), np.nan))
    with pytest.raises(NotFittedError):
        BayesianRegressor().calibrate(X, Y)
    assert fitted.stretch_.tolist() == [1, 1]
    fitted.calibrate(X[40:49], Y[40:49])
    farthest = ratios(fitted, X[40:49], Y[40:49], 0.9).max(0)
    np.testing.assert_allclose(farthest, 1)  # nine rows are enough, and the last of them is the end


def test_means_outside_their_intervals_are_refused(monkeypatch):
    """One function in a hundred that is far away carries the mean."""
    model = BayesianRegressor(**QUICK).fit(X[:40], Y[:40, :1])
    means = torch.zeros(100, 50, 1, dtype=torch.float64)
    means[0] = 1e6
    batch = GaussianPrediction(means, torch.ones_like(means))
    assert float(batch.mean[0]) > float(batch.quantile(0.95)[0]) > norm.ppf(0.9)
    monkeypatch.setattr(model, "_gaussians", lambda X: iter([batch]))
    with pytest.raises(ValueError, match="the mean lies outside the interval in too many rows"):
        model.calibrate(X[40:], Y[40:, :1])
