"""Studies with what users would take instead, on everyday tables, and of rows that are asked for."""

import dataclasses
import math
import sys
import types
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import norm

import gilib.sklearn
from experiments import load_records
from experiments.comparisons import against, everyday, rivals
from experiments.comparisons.asking import disputed
from experiments.comparisons.guide import POSTERIORS, RECIPES, together
from experiments.comparisons.tasks import MOONS, measured, task
from experiments.runner.running import run_experiment

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def yacht():
    return task("yacht", 0)


@pytest.mark.slow
def test_all_methods_run_and_auto_has_the_best_bound():
    assert run_experiment("against", "smoke").added == 17
    found = against.with_auto(load_records("against"))
    assert set(found) == {("yacht", 0), (MOONS, 0)}
    for own in found.values():
        assert all(math.isfinite(value) for metrics in own.values() for value in metrics.values())
        assert own["auto"]["elbo"] == max(own[name]["elbo"] for name in rivals.OURS if name in own)
        assert own["auto"]["process_seconds"] > own["deep_gp"]["process_seconds"]


@pytest.mark.parametrize("counts", [{"edition": 2}, {"fresh": 100}, {"edition": 2, "fresh": 100}])
def test_the_last_edition_counts_and_fresh_points_do(counts):
    def record(more, elbo):
        config = {"dataset": MOONS, "split": 0, "method": "gp", **more}
        return {"config": config, "metrics": {"elbo": elbo, "process_seconds": 1.0}}

    found = against.with_auto([record(counts, 2.0), record({}, 1.0)])
    assert found[MOONS, 0]["gp"]["elbo"] == 2.0
    others = record({"method": "network"}, 3.0)  # of a set with fresh points those of the split do not count
    assert ("network" in against.with_auto([record(counts, 2.0), others])[MOONS, 0]) == (
        "fresh" not in counts
    )


def test_fresh_points_follow_the_distribution_of_the_split():
    """They are from its distribution: the same training data, no point twice, close moments."""
    own, fresh = task(MOONS, 1), task(MOONS, 1, fresh=4000)
    assert torch.equal(own.x, fresh.x) and fresh.test_x.shape == (4000, 2)
    assert torch.cdist(fresh.test_x.double(), own.x.double()).min() > 0.0
    for label in (0, 1):
        old, new = own.x[own.y == label], fresh.test_x[fresh.test_y == label]
        assert ((old.mean(0) - new.mean(0)).abs() < 5 * old.std(0) / len(old) ** 0.5).all()
    assert not torch.equal(fresh.test_x, task(MOONS, 0, fresh=4000).test_x)
    assert {c.dataset for c in against.grid("long") if c.fresh} == {MOONS}
    with pytest.raises(ValueError, match="no fresh points of yacht"):
        task("yacht", 0, fresh=10)


def test_what_is_installed_apart(yacht, monkeypatch):
    """A package of the same interface in its place: mean and deviation become the prediction."""
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=31), rng.uniform(0.5, 1.0, size=31)

    class Regressor:
        def __init__(self, **settings):
            assert settings == {"verbose": False, "random_state": 0}

        def fit(self, x, y):
            assert x.shape == (277, 6) and y.shape == (277,)
            return self

        def pred_dist(self, x):
            return types.SimpleNamespace(params={"loc": loc, "scale": scale})

    monkeypatch.setitem(sys.modules, "ngboost", types.SimpleNamespace(NGBRegressor=Regressor))
    found = rivals.natural_gradient_boosting(yacht, 0, 0).prediction
    np.testing.assert_allclose(found.mean[:, 0], loc)
    np.testing.assert_allclose(found.sd[:, 0], scale)
    monkeypatch.setitem(sys.modules, "ngboost", None)
    with pytest.raises(ImportError, match="no dependency of gilib .* pip install --no-deps ngboost"):
        rivals.prepare("ngboost")


def test_the_process_is_measured_in_the_units_of_the_data(yacht):
    """The same model, fitted here, and its densities by scipy."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF() + WhiteKernel()
    x, y = yacht.x.double().numpy(), yacht.y.double().numpy()[:, 0]
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(x, y)
    mean, sd = model.predict(yacht.test_x.double().numpy(), return_std=True)
    scale, truth = float(yacht.y_std), yacht.test_y.double().numpy()[:, 0]
    found = measured(rivals.gaussian_process(yacht, 0, 0).prediction, yacht)
    density = norm.logpdf(scale * truth, scale * mean, scale * sd).mean()
    assert found["log_likelihood"] == pytest.approx(density, abs=1e-2)  # rows are in another order
    assert found["rmse"] == pytest.approx(scale * np.sqrt(((mean - truth) ** 2).mean()), rel=1e-2)


def test_a_process_sees_no_more_points_than_it_may(yacht, monkeypatch):
    monkeypatch.setattr(rivals, "PROCESS_POINTS", 20)
    few = rivals.gaussian_process(yacht, 0, 0).prediction
    monkeypatch.setattr(rivals, "PROCESS_POINTS", 2000)
    assert (few.sd.mean() > rivals.gaussian_process(yacht, 0, 0).prediction.sd.mean()).all()


def test_boostings_intervals_are_its_quantiles_and_members_of_an_ensemble_differ(yacht):
    found = rivals.gradient_boosting(yacht, 0, 0)
    assert 0.0 < found.more["coverage_90"] <= 1.0
    wide = dataclasses.replace(yacht, test_y=yacht.test_y + 100.0)
    assert rivals.gradient_boosting(wide, 0, 0).more["coverage_90"] == 0.0
    means = rivals.ensemble(yacht, 0, 3).prediction.means
    assert means.shape == (5, 31, 1)
    assert (torch.pdist(means[..., 0]) > 1e-3).all()


def test_classes_are_measured_by_hand():
    moons = task(MOONS, 0)
    found = rivals.logistic_regression(moons, 0, 0).prediction
    own = measured(found, moons)
    p = found.mean.numpy()[np.arange(len(moons.test_y)), moons.test_y.numpy()]
    assert own["log_likelihood"] == pytest.approx(np.log(p).mean(), rel=1e-6)
    assert own["error"] == pytest.approx((p < 0.5).mean())


def cell(method, split=0, **metrics):
    return {"config": {"dataset": "yacht", "split": split, "method": method}, "metrics": metrics}


def test_posteriors_meet_recipes_on_the_cells_that_both_have():
    posteriors = [
        cell(method, split, log_likelihood=-2.0, train_process_seconds=3.0)
        for split in (0, 1, 2)
        for method in (*POSTERIORS, "hmc")
    ]
    posteriors[0] |= {"metrics": {}, "diverged_at": 7}
    against = [
        cell(method, split, elbo=float(k), process_seconds=5.0)
        for split in (0, 1, 3)
        for k, method in enumerate((*rivals.OURS, "forest"))
        if (split, method) != (1, rivals.OURS[0])
    ]
    found = together(posteriors, against)
    assert set(found) == {("yacht", 0)}  # split 1 lacks a recipe, 2 all of them, 3 the posteriors
    (own,) = found.values()
    assert set(own) == {*POSTERIORS, *RECIPES}
    assert own[POSTERIORS[0]] == {} and own[POSTERIORS[1]]["process_seconds"] == 3.0
    assert own["auto"]["elbo"] == own[rivals.OURS[-1]]["elbo"]
    assert own["auto"]["process_seconds"] == 5.0 * len(rivals.OURS)


def test_rows_are_those_with_the_largest_variance_given_the_rows_before():
    """Against the conditional covariance in closed form, with the draws' own covariance for a prior."""
    functions = np.random.default_rng(0).normal(size=(12, 3)) @ np.random.default_rng(1).normal(size=(3, 50))
    covariance, noise, found = np.cov(functions, bias=True), 0.3, []
    for _ in range(5):
        prior = covariance[np.ix_(found, found)] + noise**2 * np.eye(len(found))
        cross = covariance[:, found]
        left = covariance.diagonal() - np.einsum("ni,ij,nj->n", cross, np.linalg.inv(prior), cross)
        left[found] = -1.0
        found.append(int(left.argmax()))
    assert disputed(functions, noise, 5) == found


def test_both_choices_begin_with_the_same_model(monkeypatch):
    quick = partial(gilib.sklearn.BayesianRegressor, steps=5)
    monkeypatch.setattr(gilib.sklearn, "BayesianRegressor", quick)
    assert run_experiment("asking", "smoke").added == 2
    one, other = (record["curve"] for record in load_records("asking"))
    assert len(one) == len(other) == 2 and one[0] == other[0] and one[1] != other[1]


def test_a_quarter_of_the_rows_tests():
    own, other = everyday.task("diabetes", 0), everyday.task("diabetes", 1)
    assert (len(own.x), len(own.test_x), own.classes) == (332, 110, None)
    torch.testing.assert_close(own.x.mean(0), torch.zeros(10), atol=1e-5, rtol=0.0)
    assert own.data == other.data and not torch.equal(own.y, other.y)
    assert everyday.task("wine", 0).classes == 3


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "vega_datasets", None)
    with pytest.raises(ImportError, match="pip install vega_datasets statsmodels"):
        everyday.task("cars", 0)


def test_words_become_columns_and_gaps_are_left_out():
    import pandas as pd

    frame = pd.DataFrame({"a": ["x", "y", "x"], "b": [1.0, 2.0, None], "y": [3.0, 4.0, 5.0]})
    x, y = everyday._of_frame(frame, "y")
    assert x.tolist() == [[1.0, 0.0], [2.0, 1.0]] and y.tolist() == [3.0, 4.0]


def test_the_default_runs_beside_others():
    assert run_experiment("everyday", "smoke").added == 4
    for record in load_records("everyday"):
        assert all(math.isfinite(value) for value in record["metrics"].values())
        assert ("elbo" in record["metrics"]) == (record["config"]["method"] == "default")
