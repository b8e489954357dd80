"""What users would take instead: grids, measures against independent ones, one smoke run."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from gilib.experiments import load_records
from gilib.experiments.comparisons import against, rivals
from gilib.experiments.comparisons.tasks import MOONS, measured, task
from gilib.experiments.running import run_experiment

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def yacht():
    return task("yacht", 0)


def test_every_method_has_a_name_and_meets_its_kind_of_targets():
    assert {*rivals.METHODS, "auto"} == set(against.LABELS)
    cells = {(c.dataset, c.method) for c in against.grid("long")}
    assert ("yacht", "exact_gp") in cells and (MOONS, "logistic") in cells
    assert not {("yacht", "logistic"), (MOONS, "exact_gp"), ("spambase", "exact_gp")} & cells


def test_all_methods_run_and_auto_has_the_best_bound():
    assert run_experiment("against", "smoke").added == 16
    found = against.with_auto(load_records("against"))
    assert set(found) == {("yacht", 0), (MOONS, 0)}
    for own in found.values():
        assert all(math.isfinite(value) for metrics in own.values() for value in metrics.values())
        assert own["auto"]["elbo"] == max(own[name]["elbo"] for name in rivals.OURS)
        assert own["auto"]["process_seconds"] > own["deep_gp"]["process_seconds"]


def test_no_auto_without_all_three():
    config = {"dataset": "yacht", "split": 0, "method": "gp"}
    records = [{"config": config, "metrics": {"elbo": 1.0, "process_seconds": 1.0}}]
    assert set(against.with_auto(records)["yacht", 0]) == {"gp"}
    assert against.with_auto([records[0] | {"diverged_at": 0}]) == {}


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


def test_boostings_intervals_are_its_quantiles(yacht):
    found = rivals.gradient_boosting(yacht, 0, 0)
    assert 0.0 < found.more["coverage_90"] <= 1.0
    wide = dataclasses.replace(yacht, test_y=yacht.test_y + 100.0)
    assert rivals.gradient_boosting(wide, 0, 0).more["coverage_90"] == 0.0


def test_an_ensemble_has_five_members_that_differ(yacht):
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
