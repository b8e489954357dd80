"""Structured deep GPs on the UCI sets: the grid, where methods start, and what is measured."""

import dataclasses
import itertools
import math

import pytest
import torch

import gilib
from gilib.experiments import load_records
from gilib.experiments.lindinger2020 import measures, networks, tasks, uci, uci_run
from gilib.experiments.lindinger2020.uci import StructuredConfig
from gilib.experiments.printed import printed
from gilib.experiments.registry import EXPERIMENTS
from gilib.experiments.runner.experiment import Job
from gilib.experiments.runner.identity import identity
from gilib.experiments.running import Ran, run_experiment
from gilib.models import inducing_start
from gilib.structured import StructuredGP
from gilib.training import Paused
from tests.support import D, assert_equal, seeded

CPU = torch.device("cpu")
METHODS = {"sgp": 1, "mf": 3, "star": 3, "fc": 2, "gi": 2, "gi_bnn": 3}
NAMES = {"sgp": "sgp", "mf_dgp": "mf", "star_dgp": "star"}


def config(method="star", *, depth=None, task="extrapolation", repetition=0, **settings):
    settings = {"num_inducing": 8, "steps": 4, "hidden_scale": 0.1, "elbo_samples": 5} | settings
    settings = {"test_samples": 5} | settings
    return StructuredConfig("boston", task, repetition, method, depth or METHODS[method], **settings)


def built(method="star", task="extrapolation", **settings):
    one = config(method, **settings)
    found = tasks.load("boston", task, one.repetition, dtype=D)
    return one, found, *networks.build(one, found)


def test_every_printed_cell_but_sghmc_has_configurations():
    grids = {
        scale: {(c.dataset, c.task, c.method, c.depth) for c in uci.tables(scale)} for scale in uci.SCALES
    }
    for table, task in (("1_interpolation", "interpolation"), ("S3_extrapolation", "extrapolation")):
        rows = [row for row in printed(f"lindinger2020_table{table}") if row["method"] in NAMES]
        wanted = {(row["dataset"], task, NAMES[row["method"]], int(row["depth"])) for row in rows}
        assert len(wanted) == 8 * 5 and wanted <= grids["paper"]
        small = {cell for cell in wanted if cell[0] in uci.FIRST + uci.SECOND or cell[3] != 2}
        assert small <= grids["reduced"]


def test_the_paper_grid_has_the_papers_settings_ten_times():
    grid = list(uci.tables("paper"))
    assert len(set(grid)) == len(grid) == 8 * 2 * 10 * 10
    about = dict.fromkeys(("dataset", "task", "repetition", "method", "depth", "lr"))
    defaults = dataclasses.asdict(StructuredConfig("", "", 0, "", 0))
    assert all(dataclasses.asdict(one) | about == defaults | about for one in grid)
    assert {one.lr for one in grid if one.method != "gi_bnn"} == {5e-3}
    wanted = {"num_inducing": 128, "width": 5, "steps": 20_000, "batch_size": 512, "num_samples": 5}
    wanted |= {"lr": 5e-3, "decay": 0.98, "decay_every": 1000, "lengthscale": 1.0, "variance": 1.0}
    wanted |= {"noise_variance": 0.01, "hidden_scale": 1e-5, "held_out": 0.1, "test_samples": 1000}
    assert {name: defaults[name] for name in wanted} == wanted


def test_a_grid_that_was_only_begun_is_balanced():
    """Boston and energy, extrapolation, repetition by repetition: all methods of both before the next."""
    grid = [(c.task, c.repetition, c.dataset, c.method, c.depth) for c in uci.tables("reduced")]
    assert len(set(grid)) == len(grid) == 2 * (4 * 5 * 9 + 4 * 3 * 3)
    tasks_of = ("extrapolation", "interpolation")
    first = itertools.product(tasks_of, range(5), ("boston", "energy"), uci.MAIN)
    assert grid[:60] == [(*cell, *model) for *cell, model in first]
    more = itertools.product(tasks_of, range(5), ("boston", "energy"), uci.MORE)
    assert grid[60:180] == [(*cell, *model) for *cell, model in more]
    assert {name for *_, name, _, _ in grid[180:360]} == {"concrete", "wine"}
    assert {(c.steps, c.num_inducing) for c in uci.tables("reduced")} == {(5000, 128)}


def test_an_identity_is_that_of_what_is_not_at_its_default():
    """Fields may be added; those that are recorded never change their meaning."""
    known = identity("structured_uci", StructuredConfig("boston", "extrapolation", 0, "star", 3))
    same = StructuredConfig("boston", "extrapolation", 0, "star", 3, width=5, hidden_scale=1e-5)
    assert identity("structured_uci", same) == known == "ecc536b7c09f"


def test_what_gilib_does_not_have_yet_is_refused():
    for method in uci.PENDING:
        with pytest.raises(ValueError, match=f"method '{method}' needs .*, which gilib does not have yet"):
            uci.check([config("star"), config(method, depth=2)])
    uci.check(list(uci.tables("smoke")))
    methods = {c.method for scale in uci.SCALES for c in uci.tables(scale)}
    assert methods == set(networks.BUILDERS) and not methods & set(uci.PENDING)


@pytest.mark.parametrize("method", ["sgp", "mf", "star", "fc"])
def test_structured_ones_start_at_clusters_and_nearly_fixed_layers(method):
    one, task, net, likelihood = built(method, repetition=3)
    joint = networks.gaussian_of(net)
    assert (joint.pattern.family, joint.pattern.widths) == (
        networks.FAMILIES[method],
        (5,) * (one.depth - 1) + (1,),
    )
    (layer,) = (module for module in net.modules() if isinstance(module, StructuredGP))
    assert_equal(next(iter(layer)).inducing_inputs.detach(), inducing_start(task.all_x, 8, seed=3))
    for row, place in zip(joint.factor(), joint.pattern.places, strict=True):
        start = 1.0 if place.layer == one.depth - 1 else 0.1
        assert_equal(row[:, -8:].detach(), start * torch.eye(8, dtype=D))
        assert (row[:, :-8] == 0).all()
    assert_equal(likelihood.noise_variance.detach(), torch.tensor(0.01, dtype=D))
    assert all((mean == 0).all() for mean in joint.means)
    logs = [value for name, value in net.named_parameters() if ".log." in name]
    assert len(logs) == 2 * one.depth and all((value == 0).all() for value in logs)


def test_the_paper_starts_where_the_layer_itself_does():
    """1e-5 is the layer's own start: setting it changes nothing."""
    _, _, net, _ = built("star", hidden_scale=1e-5)
    before = [row.detach().clone() for row in networks.gaussian_of(net).rows]
    fresh = StructuredConfig("boston", "extrapolation", 0, "star", 3).hidden_scale
    networks.begin_at(net, fresh)
    assert all(torch.equal(a, b) for a, b in zip(before, networks.gaussian_of(net).rows, strict=True))


def test_the_first_mean_function_keeps_the_directions_of_all_training_points():
    """The leading eigenvectors of their covariance, held-out points included; zero in the last layer."""
    _, task, net, _ = built("mf")
    (layer,) = (module for module in net.modules() if isinstance(module, StructuredGP))
    first, _, last = layer
    matrix = first.mean_function(torch.zeros(1, 0, dtype=D))(torch.eye(task.x.shape[1], dtype=D)).squeeze()
    directions = torch.linalg.eigh(task.all_x.T.cov()).eigenvectors[:, -5:]
    assert_equal(matrix @ matrix.T, directions @ directions.T, 1e-9)
    assert last.mean is None


@pytest.mark.parametrize("method", ["gi", "gi_bnn"])
def test_global_inducing_starts_at_training_points_with_their_targets(method):
    _, task, net, _ = built(method)
    same = (net.inducing_points[:, None] == task.x).all(-1)
    assert (same.sum(-1) >= 1).all() and len(net.inducing_points) == 8
    rows = same.double().argmax(-1)
    last = [module for module in net.modules() if hasattr(module, "pseudo")][-1]
    assert_equal(last.pseudo.outputs.detach(), task.y[rows])


def test_the_rate_falls_by_stairs():
    rule = networks.rule(config(steps=3000, lr=0.1))
    assert [rule.schedule(step, 3000) for step in (0, 999, 1000, 1999, 2000, 2999)] == pytest.approx(
        [1.0, 1.0, 0.98, 0.98, 0.98**2, 0.98**2]
    )
    assert networks.rule(config(steps=4)).schedule(3, 4) == 1.0


# measures


def test_predictions_are_mixtures_in_original_units():
    """Written out for every test point: S Gaussians, scaled and shifted by the targets' statistics."""
    _, task, net, likelihood = built("star")
    found = measures.predictions(net, likelihood, task, 7, 11)
    estimate = net.estimate(7, len(task.test_x), generator=seeded(11))
    mean, variance = estimate.moments(task.test_x)
    scale, shift = task.normalisation.y_std, task.normalisation.y_mean
    sd = (variance + 0.01).sqrt() * scale
    means = mean * scale + shift
    density = torch.distributions.Normal(means, sd).log_prob(task.test_y)
    assert_equal(found["log_likelihood"], (density.logsumexp(0) - math.log(7.0))[:, 0], 1e-9)
    assert_equal(found["squared_error"], (means.mean(0) - task.test_y)[:, 0].square(), 1e-9)
    total = sd.square().mean(0) + means.var(0, correction=0)
    assert_equal(found["variance"], total[:, 0], 1e-9)
    metrics = measures.test_metrics(found)
    assert metrics["test_log_likelihood"] == pytest.approx(float(found["log_likelihood"].mean()))
    assert metrics["rmse"] == pytest.approx(math.sqrt(float(found["squared_error"].mean())))


def test_measures_in_batches_are_those_of_all_points(monkeypatch):
    """One layer leaves nothing to draw: every batch has its exact share."""
    _, task, net, likelihood = built("sgp")
    bound = measures.bound(net, likelihood, task, 4, 0)
    whole, far = measures.predictions(net, likelihood, task, 4, 0), measures.distances(task)
    assert bound["elbo_stderr"] == pytest.approx(0.0, abs=1e-12) and bound["points"] == len(task.x)
    monkeypatch.setattr(measures, "AT_ONCE", 4 * 50)
    parts = measures.bound(net, likelihood, task, 4, 1)
    assert parts["elbo"] == pytest.approx(bound["elbo"], rel=1e-12)
    assert parts["elbo_total"] == pytest.approx(bound["elbo"] * len(task.x), rel=1e-12)
    for name, value in measures.predictions(net, likelihood, task, 4, 1).items():
        assert_equal(value, whole[name], 1e-9)
    assert_equal(measures.distances(task), far, 1e-9)
    estimate = net.estimate(1, len(task.x))
    expected = gilib.elbo(estimate, likelihood, task.x, task.y, num_data=len(task.x), per_point=True)
    assert bound["elbo"] == pytest.approx(expected.item(), rel=1e-12)


def test_distances_are_to_the_nearest_training_input():
    task = tasks.load("boston", "interpolation", 0, dtype=D)
    expected = (task.test_x[:, None] - task.all_x).square().sum(-1).amin(-1).sqrt()
    assert_equal(measures.distances(task), expected, 1e-6)


def test_only_the_shown_points_are_recorded(monkeypatch):
    _, task, net, likelihood = built("mf")
    found = measures.predictions(net, likelihood, task, 3, 0)
    task = dataclasses.replace(task, shown=torch.tensor([4, 17]))
    shown = measures.shown(found, task)
    assert shown["variance"] == pytest.approx(found["variance"][[4, 17]].tolist(), rel=5e-4)
    assert set(shown) == {"log_likelihood", "variance", "squared_error", "distance"}
    assert all(value == float(f"{value:.4g}") for values in shown.values() for value in values)


# trainings


@pytest.mark.parametrize("method", ["star", "gi"])
def test_a_training_is_resumed_where_it_was_paused(tmp_path, method):
    """A pause changes nothing but the clock."""
    one = config(method, steps=30, stop_after=10)
    straight = uci_run.run(one, Job(CPU, tmp_path / "one"))
    with pytest.raises(Paused):
        uci_run.run(one, Job(CPU, tmp_path / "two", deadline=0.0))
    resumed = uci_run.run(one, Job(CPU, tmp_path / "two"))
    for record in (straight, resumed):
        assert record["metrics"].pop("train_seconds") > 0
    assert resumed == straight and straight["metrics"]["steps"] == 30


def test_all_methods_but_the_sparse_gp_hold_points_out_and_may_stop(monkeypatch):
    """A score that falls at every strip ends them at once; the sparse GP has no score."""
    looks = itertools.count()
    monkeypatch.setattr(uci_run.HoldOut, "_look", lambda self, step, net: torch.tensor(-float(next(looks))))
    monkeypatch.setattr("gilib.experiments.lindinger2020.stopping.STRIP", 10)
    found = {m: uci_run.run(config(m, steps=90, stop_after=10), Job(CPU, None)) for m in ("sgp", "mf")}
    assert [found[m]["metrics"]["points"] for m in found] == [253, 228]
    assert [found[m]["metrics"]["stopped_early"] for m in found] == [False, True]
    assert [found[m]["metrics"]["steps"] for m in found] == [90, 70], "strips end at 20, 30, ...; five fall"


def test_smoke_runs_record_everything_once():
    assert run_experiment("structured_uci", "smoke") == Ran(added=24, diverged=0, left=0)
    assert run_experiment("structured_uci", "smoke") == Ran(0, 0, 0)
    records = load_records("structured_uci")
    assert {(r["config"]["method"], r["config"]["depth"]) for r in records} == set(uci.SMOKE)
    numbers = ("elbo", "elbo_stderr", "elbo_total", "test_log_likelihood", "rmse", "noise_variance")
    for record in records:
        assert all(math.isfinite(record["metrics"][name]) for name in numbers)
        size = {"extrapolation": 253, "interpolation": 51}[record["config"]["task"]]
        assert {len(values) for values in record["test_points"].values()} == {size}
    by_repetition = {}
    for record in records:
        key = record["config"]["task"], record["config"]["repetition"]
        by_repetition.setdefault(key, set()).add(tuple(record["test_points"]["distance"]))
    assert all(len(distances) == 1 for distances in by_repetition.values()), "the same points for all methods"
    assert "structured_uci" in EXPERIMENTS
