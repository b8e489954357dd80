"""The search for BALI's settings: what it may look at, and the choice; and the synthetic problems."""

import dataclasses
import math

import pytest
import torch

import gilib
from experiments import RecordError, load_records
from experiments.common import uci_splits
from experiments.kurle2024 import problems, search, toys
from experiments.runner.running import run_experiment
from gilib.data import load_uci
from gilib.randomness import ReplicaGenerators
from tests.experiments.recorded import CPU, JOB, recorded
from tests.support import assert_equal


def built():
    """A network for each of two settings, on a split each."""
    pair = [search.BaliSettings("absolute", v0, 0.3, 0.2) for v0 in (1.0, 4.0)]
    configs = [search.BaliSearchConfig("yacht", k, own) for k, own in enumerate(pair)]
    data = uci_splits.load_validation("yacht", [0, 1], CPU)
    return data, *search.build(configs, data)


def record(trial, score):
    recorded("bali_search", trial, validation_log_likelihood=score)


def test_validation_data_are_training_rows_and_test_rows_are_not_read():
    """All rows of inner and outer parts, in the data's units, are rows of the published training part."""
    data = uci_splits.load_validation("yacht", [0, 2], CPU)
    dataset = load_uci("yacht")
    for r, k in enumerate((0, 2)):
        split = dataset.split(k)
        inner, outer = split.train_index[:-55], split.train_index[-55:]
        assert len(split.train_index) == 277 and data.x.shape[1] == 222 and data.test_x.shape[1] == 55
        centre, spread = dataset.x[inner].mean(0), dataset.x[inner].std(0)
        for rows, x in ((inner, data.x[r]), (outer, data.test_x[r])):
            expected = ((dataset.x[rows] - centre) / spread).float()
            assert torch.allclose(x, expected, atol=1e-5)
        assert math.isclose(float(data.y_std[r]), float(dataset.y[inner].std()), rel_tol=1e-6)
        raw = data.test_y[r].double() * dataset.y[inner].std() + dataset.y[inner].mean()
        assert torch.allclose(raw, dataset.y[outer], atol=1e-4)
        assert not set(outer.tolist()) & set(split.test_index.tolist())


def test_one_default_serves_all_choosing_sets(monkeypatch):
    scale = dataclasses.replace(search.SCALES["smoke"], sets=("yacht", "wine"), choosing=("yacht",))
    monkeypatch.setitem(search.SCALES, "smoke", scale)
    trials = list(search.search("smoke"))
    assert [(t.dataset, t.settings.prior, t.settings.v0) for t in trials[:4]] == [
        ("yacht", prior, v0) for prior in ("absolute", "relative") for v0 in (1.0, 3.0)
    ]
    for trial, score in zip(trials[:3], (-2.0, -1.5, -1.0), strict=True):
        record(trial, score)
    with pytest.raises(RecordError, match="first run `python -m experiments run bali_search --scale smoke"):
        search.chosen("smoke")
    recorded("bali_search", trials[3])
    assert search.chosen("smoke").setting == trials[2].settings
    choice = search.chosen("smoke", "absolute")
    assert choice.setting == trials[1].settings and choice.losses == {"yacht": 0.0}
    with pytest.raises(RecordError, match="not complete"):
        search.serves("smoke", choice)
    for trial, score in zip(trials[4:], (-3.0, -3.25, 0.0, 0.0), strict=True):
        record(trial, score)
    assert search.serves("smoke", choice).losses == {"yacht": 0.0, "wine": 0.25}


def test_smoke_search_beats_predicting_the_mean():
    assert run_experiment("bali_search", "smoke").added == 4
    for found in load_records("bali_search"):
        assert found["metrics"]["validation_rmse"] < 0.7 * found["metrics"]["constant_rmse"]
        assert math.isfinite(found["metrics"]["validation_log_likelihood"])


def test_scores_are_in_the_units_of_the_data_and_v0_is_a_variance():
    data, net, likelihood = built()
    found = search.measure(net, likelihood, data, 3, [0, 1])
    source = ReplicaGenerators([4000, 4001])
    standard = gilib.predict(net, likelihood, data.test_x, 3, generator=source).log_prob(data.test_y).mean(-1)
    assert_equal(found["validation_log_likelihood"], (standard - data.y_std.log()).detach(), 1e-5)
    constant = data.test_y.square().mean((-2, -1)).sqrt() * data.y_std  # that of the training mean
    assert_equal(found["constant_rmse"], constant, 1e-5)
    first = next(layer for layer in net.layers if layer.has_weights)
    operator, _ = first.hyperparameters.draw(torch.zeros(1, 2, first.hyperparameters.noise_size))
    assert_equal(operator.scale.flatten(), torch.tensor([7.0, 7.0 / 4.0]), 1e-6)  # I / v0, a variance


def test_sinc_has_its_zeros_and_sines_their_trend():
    x = torch.tensor([math.pi / 3, math.pi, 0.5], dtype=torch.float64)
    expected = torch.tensor([0.0, 0.0, math.sin(1.5) / 1.5], dtype=torch.float64)
    assert torch.allclose(problems.sinc(x), expected, rtol=0, atol=1e-15)
    quarters = torch.tensor([0.0, 0.25, 0.5, 1.0], dtype=torch.float64)
    assert torch.allclose(problems.sines(quarters), torch.tensor([0.0, 0.55, 0.5, 1.0]).double())


@pytest.mark.parametrize(
    ("name", "function", "points", "noise"),
    [("sines", problems.sines, 32, 0.02), ("sinc", problems.sinc, 128, 0.05)],
)
def test_regressions_are_functions_with_noise(name, function, points, noise):
    """The mean square of 20 draws' residuals, N in all, within 6 of its standard errors, √(2/N) of itself."""
    squares = []
    for seed in range(20):
        problem = problems.load(name, seed)
        scale = problem.normalisation
        assert problem.x.shape == (points, 1) and len(problem.sha256) == 64
        assert problem.supported.any() and not problem.supported.all()
        x, y = scale.invert_x(problem.x.double()), scale.invert_y(problem.y.double())
        squares.append((y - function(x)).square().mean() / noise**2)
        expected = scale.invert_y(problem.true_function.double())
        assert torch.allclose(expected, function(scale.invert_x(problem.grid.double())), rtol=0, atol=1e-5)
    assert abs(float(torch.stack(squares).mean()) - 1.0) < 6.0 * math.sqrt(2.0 / (20 * points))


@pytest.mark.parametrize("name", ["sines", "moons"])
@pytest.mark.parametrize("method", ["bali", "bali_paper", "bbb"])
def test_a_record_is_what_the_figures_need(name, method):
    config = toys.ToyConfig(name, method, 3, 0.1, width=4, kl_weight=0.1, scale="smoke")
    metrics = toys.run(config, JOB)["metrics"]
    keys = ("mean", "function_sd", "sd", "truth") if name == "sines" else ("probability", "probability_sd")
    assert {len(metrics[key]) for key in keys} == {121 if name == "sines" else 441}
    assert len(metrics["y"]) == {"sines": 32, "moons": 128}[name]
    assert metrics["sd_near"] > 0.0 and metrics["sd_away"] > 0.0


def test_bali_fits_the_sines():
    """What a constant predictor leaves is 1; the noise is about 0.05 in these units."""
    config = toys.ToyConfig("sines", "bali", 60, prior_variance=100.0, width=50)
    assert toys.run(config, JOB)["metrics"]["train_rmse"] < 0.5
