"""Weights of rows and of classes: a row of weight three is three rows."""

import numpy as np
import pytest
import sklearn
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gilib
from gilib.recipes import bound
from gilib.sklearn import BayesianClassifier, BayesianRegressor
from gilib.training import Bali
from tests.support import assert_equal, normals, seeded

X = np.random.default_rng(0).normal(size=(24, 2))
Y = X[:, 0] - np.sin(X[:, 1]) + 0.1 * np.random.default_rng(1).normal(size=24)
LABELS = np.where(Y > 0, "up", "down")
COUNTS = np.random.default_rng(2).integers(0, 4, 24)
AGAIN = np.random.default_rng(3).permutation(np.arange(24).repeat(COUNTS))
QUICK = {"steps": 3, "num_samples": 5, "random_state": 0}
TARGETS = {"poisson": np.rint(np.exp(Y)), "gamma": np.exp(Y), "beta": 1 / (1 + np.exp(-Y)), "student": Y}
TARGETS |= {"negative_binomial": TARGETS["poisson"], "gaussian": Y}


@pytest.mark.parametrize(
    ("model", "target"),
    [("network", "log"), *((model, None) for model in ("network", "gp", "heteroscedastic_gp", "deep_gp"))],
)
def test_rows_that_count_are_rows_that_are_repeated(model, target):
    y = np.exp(Y) if target else np.column_stack([Y, X[:, 0]])
    weighted, repeated = (BayesianRegressor(model, target=target, **QUICK) for _ in range(2))
    weighted.fit(X, y, sample_weight=COUNTS)
    repeated.fit(X[AGAIN], y[AGAIN])
    assert weighted.elbos_ == repeated.elbos_
    assert np.array_equal(weighted.noise_sd_, repeated.noise_sd_)
    assert np.array_equal(weighted.predict(X), repeated.predict(X))
    mean_square = np.average(np.square(weighted.noise_sd(X)), 0, COUNTS)
    np.testing.assert_allclose(weighted.noise_sd_, np.sqrt(mean_square))


@pytest.mark.parametrize(
    ("model", "class_weight"), [("network", "balanced"), ("gp", {"up": 2.0, "down": 0.5}), ("deep_gp", None)]
)
def test_so_it_is_with_classes(model, class_weight):
    """A class that never counts is none."""
    weighted, repeated = (BayesianClassifier(model, class_weight=class_weight, **QUICK) for _ in range(2))
    weighted.fit(X, LABELS, sample_weight=COUNTS)
    repeated.fit(X[AGAIN], LABELS[AGAIN])
    assert weighted.elbo_ == repeated.elbo_
    assert np.array_equal(weighted.predict_proba(X), repeated.predict_proba(X))
    labels = np.append(LABELS[:-1], "never")
    assert weighted.fit(X, labels, (labels != "never") + 0.0).classes_.tolist() == ["down", "up"]


def test_the_bound_of_an_estimator_counts_its_rows():
    model = BayesianRegressor("gp", **QUICK).fit(X, Y, sample_weight=COUNTS)
    scales = model.normalisation_
    x, y = scales.x(torch.from_numpy(X[AGAIN])), scales.y(torch.from_numpy(Y[AGAIN])[:, None])
    truth = bound(model.net_, model.likelihood_, x, y, generator=seeded()) + scales.log_density_shift
    assert_equal(torch.tensor(model.elbo_, dtype=truth.dtype), truth, 1e-5)


def likelihood_for(model, kind, classes):
    x, y = torch.from_numpy(X[:, :2]), torch.from_numpy(TARGETS[kind])[:, None]
    if classes:
        y = torch.from_numpy(np.unique(LABELS, return_inverse=True)[1])
    changes = {"likelihood": kind, "num_inducing": 7}
    recipe = gilib.recommended(model, **changes)
    net, likelihood = recipe.build(x.float(), y if classes else y.float(), classes=2 if classes else None)
    return net.double(), likelihood, x, y.long() if kind == "poisson" else y


@pytest.mark.parametrize(
    ("model", "kind", "classes"),
    [
        *[("network", kind, False) for kind in TARGETS],
        ("gp", "gaussian", False),
        ("gp", "poisson", False),
        ("heteroscedastic_gp", "gaussian", False),
        ("network", "gaussian", True),
    ],
)
def test_the_bound_is_that_of_repeated_rows(model, kind, classes):
    """Of rows that are repeated indeed, one by one: nothing merges them here."""
    net, likelihood, x, y = likelihood_for(model, kind, classes)
    seen = torch.from_numpy(COUNTS > 0)
    options = {"num_samples": 3, "batch_size": len(AGAIN)}
    weights = torch.from_numpy(COUNTS).double()[seen]
    found = bound(net, likelihood, x[seen], y[seen], generator=seeded(), weights=weights, **options)
    truth = bound(net, likelihood, x[AGAIN], y[AGAIN], generator=seeded(), **options)
    assert_equal(found, truth, 1e-10)
    assert abs(float(truth - bound(net, likelihood, x, y, generator=seeded(), **options))) > 1e-3


def test_half_a_row_counts_half():
    """Weights that are no whole numbers, by powers of the likelihood."""
    net, likelihood, x, y = likelihood_for("network", "gaussian", False)
    weights = normals(24, seed=4).exp()
    found = bound(net, likelihood, x, y, num_samples=3, generator=seeded(), weights=weights)
    with torch.no_grad():
        draw = net.draw(3, generator=seeded())
        logs = likelihood.expected_log_prob(draw, x, y) @ weights
    assert_equal(found, (logs + draw.log_pq).mean() / weights.sum(), 1e-10)


def test_minibatches_see_the_weights():
    options = {"batch_size": 5, "hidden": (4,)} | QUICK
    one = BayesianRegressor("network", **options).fit(X, Y, COUNTS + 1)
    other = BayesianRegressor("network", **options).fit(X, Y, np.full(24, 2))
    assert one.elbo_ != other.elbo_ and len(one.history_.elbo) == 3


def test_ones_change_nothing_and_zeros_leave_rows_out():
    kept = COUNTS > 0
    for model in (BayesianRegressor("gp", **QUICK), BayesianClassifier("network", **QUICK)):
        y = Y if isinstance(model, BayesianRegressor) else LABELS
        first = model.fit(X, y).elbo_
        assert model.fit(X, y, np.ones(24)).elbo_ == first
        first = model.fit(X[kept], y[kept]).elbo_
        assert model.fit(X, y, kept.astype(float)).elbo_ == first


def test_balanced_classes_count_the_same():
    rare = np.where(np.arange(60) < 6, "rare", "often")
    x = np.random.default_rng(5).normal(size=(60, 1))  # which says nothing of the class
    settings = {"hidden": (3,), "steps": 30, "lr": 0.1, "num_samples": 20, "random_state": 0}
    plain = BayesianClassifier(**settings).fit(x, rare).predict_proba(x)[:, 1].mean()
    balanced = BayesianClassifier(class_weight="balanced", **settings).fit(x, rare)
    assert plain < 0.25 and 0.35 < balanced.predict_proba(x)[:, 1].mean() < 0.65


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(24, -1.0), "Negative values in data passed to `sample_weight`"),
        (np.full(24, np.nan), "sample_weight contains NaN"),
        (np.ones(23), "sample_weight.shape"),
        (np.ones((24, 1)), "Sample weights must be 1D"),
        (np.zeros(24), "at least one non-zero|sums to 0"),
        (np.full(24, 1 / 24), "Multiply weights that sum to 1 by the number of rows, 24"),
    ],
)
def test_weights_that_make_no_sense(weights, message):
    for model, y in ((BayesianRegressor(**QUICK), Y), (BayesianClassifier(**QUICK), LABELS)):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("wrong", [{"up": -1.0}, {"up": np.nan}, {"up": 0.0}, "even"])
def test_class_weights_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="class_weight"):
        BayesianClassifier(class_weight=wrong, **QUICK).fit(X, LABELS)


@pytest.mark.parametrize("wrong", [np.zeros(24), np.full(24, np.inf), np.ones(23), -np.ones(24)])
def test_weights_that_fit_refuses(wrong):
    net, likelihood, x, y = likelihood_for("network", "gaussian", False)
    with pytest.raises(ValueError, match="weights must"):
        gilib.fit(net, likelihood, x, y, steps=1, weights=wrong)


def test_weights_reach_the_last_step_of_a_search_over_pipelines():
    import pandas as pd

    x, weights = pd.DataFrame(X, columns=["a", "b"]), pd.Series(COUNTS + 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = BayesianRegressor("network", **QUICK).set_fit_request(sample_weight=True)
        inner.set_score_request(sample_weight=True)
        scaler = StandardScaler().set_output(transform="pandas").set_fit_request(sample_weight=False)
        search = GridSearchCV(make_pipeline(scaler, inner), {"bayesianregressor__hidden": [(3,)]}, cv=2)
        search.fit(x, pd.Series(Y, name="y"), sample_weight=weights)
    by_hand = BayesianRegressor("network", hidden=(3,), **QUICK)
    by_hand.fit(StandardScaler().fit_transform(X), Y, sample_weight=weights)
    assert search.best_estimator_[-1].elbo_ == by_hand.elbo_
    assert search.predict(x).name == "y"


class ByBali(gilib.recipes.NetworkRecipe):
    """A recipe whose rule takes no weights."""

    def network(self, points, targets, replicas, generator):
        return gilib.models.mlp(2, (5,), 1, posterior=gilib.posteriors.Conjugate(), generator=generator)

    def _train(self, x, y, classes, seed, options):
        return gilib.recipes.Recipe._train(self, x, y, classes, seed, {"rule": Bali(), **options})


def test_a_rule_without_weights_takes_repeated_rows_and_refuses_weights(monkeypatch):
    model = BayesianRegressor(recipe=ByBali(steps=5), random_state=0)
    assert np.isfinite(model.fit(X[AGAIN], Y[AGAIN]).predict(X)).all()
    with pytest.raises(ValueError, match="counts every row once, and weights are given"):
        model.fit(X, Y, sample_weight=COUNTS)
    monkeypatch.setattr(ByBali, "new_likelihood", lambda *arguments: gilib.likelihoods.Poisson())
    with pytest.raises(TypeError, match="its field `likelihood` is 'gaussian', but the recipe gives Poisson"):
        model.fit(X, Y)
