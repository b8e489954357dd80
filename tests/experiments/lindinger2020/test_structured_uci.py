"""Structured deep GPs on the UCI sets: the grid, where methods start, and what is measured."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import pytest
import torch

import gilib
from experiments.lindinger2020 import measures, networks, tasks, uci, uci_run
from experiments.lindinger2020.uci import StructuredConfig
from gilib.models import inducing_start
from gilib.training import SGHMC, NaturalGradient
from tests.experiments.recorded import JOB
from tests.support import D, assert_equal, normals, seeded

METHODS = dict(uci.SMOKE)


def config(method="star", *, depth=None, task="extrapolation", repetition=0, **settings):
    settings = {"num_inducing": 8, "steps": 4, "hidden_scale": 0.1, "elbo_samples": 5} | settings
    settings = {"test_samples": 5} | settings
    return StructuredConfig("boston", task, repetition, method, depth or METHODS[method], **settings)


def built(method="star", task="extrapolation", **settings):
    one = config(method, **settings)
    found = tasks.load("boston", task, one.repetition, dtype=D)
    return one, found, *networks.build(one, found)


@pytest.mark.parametrize("method", networks.FAMILIES)
def test_structured_ones_start_at_clusters_and_nearly_fixed_layers(method):
    one, task, net, likelihood = built(method, repetition=3)
    joint, widths = networks.gaussian_of(net), (*(5,) * (one.depth - 1), 1)
    assert (joint.pattern.family, joint.pattern.widths) == (networks.FAMILIES[method], widths)
    first, *_ = networks.layer_of(net)
    assert_equal(first.inducing_inputs.detach(), inducing_start(task.all_x, 8, seed=3))
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


@pytest.mark.parametrize("method", ["mf", "star"])
def test_white_noise_is_in_the_kernels_of_hidden_layers_alone(method):
    """Two rows of equal coordinates: the noise is on the diagonal, and tells nothing of the other row."""
    _, _, net, _ = built(method, white=0.25)
    same = torch.zeros(2, 5, dtype=D)
    for process in list(networks.layer_of(net))[1:]:
        noise = 0.25 if process.out_features > 1 else 0.0
        assert_equal(process.hyperparameters().gram(same).detach(), 1.0 + noise * torch.eye(2, dtype=D))
    assert networks.white_of(net) == pytest.approx([0.25, 0.25])


def test_the_white_noise_is_learned_and_recorded():
    found = uci_run.run(config(white=0.25, lr=0.1), JOB)["metrics"]["white"]
    assert len(found) == 2 and all(0.0 < abs(value - 0.25) < 0.25 for value in found)
    assert "white" not in uci_run.run(config(), JOB)["metrics"]


def test_the_first_mean_function_keeps_the_directions_of_all_training_points():
    """The leading eigenvectors of their covariance, held-out points included; zero in the last layer."""
    _, task, net, _ = built("mf")
    first, _, last = networks.layer_of(net)
    matrix = first.mean.draw()(torch.eye(task.x.shape[1], dtype=D)).squeeze()
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


def test_rules_are_those_of_the_methods():
    """Natural gradients and the chain have Adam, at its own rate, for the rest."""
    rules = {method: networks.rule(config(method, steps=40, lr=0.1)) for method in METHODS}
    adam = gilib.Adam(0.1, schedule=networks.stairs(config(steps=40)))
    for method, rule in rules.items():
        if method.endswith("_ng"):
            assert rule == NaturalGradient(0.01, base_optimiser=adam, schedule=adam.schedule)
        elif method == "sghmc":
            assert rule == SGHMC(20, base_optimiser=adam) and (rule.lr, rule.momentum_decay) == (0.01, 0.05)
        else:
            assert rule == adam


def test_the_states_of_a_chain_are_those_of_its_second_half():
    kept = networks.stored_states(config("sghmc", steps=3000, states=200))
    assert (kept.burn_in, kept.every) == (1500, 7)
    record = uci_run.run(config("sghmc", steps=11, states=3), JOB)
    assert record["metrics"]["states"] == 3 and record["metrics"]["points"] == 253
    assert "elbo" not in record["metrics"] and not record["metrics"]["stopped_early"]


def test_a_chain_starts_at_clusters_and_zero():
    _, task, net, likelihood = built("sghmc", depth=3, repetition=2)
    layers = [module for module in net.modules() if isinstance(module, gilib.GP)]
    assert [layer.out_features for layer in layers] == [5, 5, 1]
    assert_equal(layers[0].inducing_inputs.detach(), inducing_start(task.all_x, 8, seed=2))
    assert all((layer.weights.scaled_weights == 0).all() for layer in layers)
    assert likelihood.noise_variance.item() == pytest.approx(0.01)


def test_predictions_are_mixtures_in_original_units():
    """Written out for every test point: S Gaussians, scaled and shifted by the targets' statistics."""
    _, task, net, likelihood = built("star")
    found = measures.predictions(measures.estimates(net, 7, 11), 7, likelihood, task)
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
    at, far = measures.estimates(net, 4, 0), measures.distances(task)
    whole = measures.predictions(at, 4, likelihood, task)
    assert bound["elbo_stderr"] == pytest.approx(0.0, abs=1e-12) and bound["points"] == len(task.x)
    monkeypatch.setattr(measures, "AT_ONCE", 4 * 50)
    parts = measures.bound(net, likelihood, task, 4, 1)
    assert parts["elbo"] == pytest.approx(bound["elbo"], rel=1e-12)
    assert parts["elbo_total"] == pytest.approx(bound["elbo"] * len(task.x), rel=1e-12)
    for name, value in measures.predictions(at, 4, likelihood, task).items():
        assert_equal(value, whole[name], 1e-9)
    assert_equal(measures.distances(task), far, 1e-9)
    estimate = net.estimate(1, len(task.x))
    expected = gilib.elbo(estimate, likelihood, task.x, task.y, num_data=len(task.x), per_point=True)
    assert bound["elbo"] == pytest.approx(expected.item(), rel=1e-12)


def test_a_chain_predicts_with_every_state_once(monkeypatch):
    """The mixture over the states, one after the other in networks that hold them, whatever the batches."""
    one, task, net, likelihood = built("sghmc", depth=1)
    names = [name for name, _ in net.named_parameters() if name.endswith("scaled_weights")]
    chain = gilib.prediction.Samples(net, {names[0]: normals(3, 8, 1)})
    monkeypatch.setattr(measures, "AT_ONCE", 3 * 50)
    found = measures.predictions(measures.states(chain, 0), 3, likelihood, task)
    parts = []
    for state in chain.states[names[0]]:
        net.get_parameter(names[0]).data.copy_(state)
        parts.append(
            [moment[0].detach() for moment in net.estimate(1, len(task.test_x)).moments(task.test_x)]
        )
    outputs, spread = map(torch.stack, zip(*parts, strict=True))
    mixture = likelihood.predictive(outputs, task.normalisation, spread)
    assert_equal(found["log_likelihood"], mixture.log_prob(task.test_y).detach(), 1e-9)


def test_only_the_shown_points_are_recorded_and_their_distance_to_the_nearest_training_input():
    _, task, net, likelihood = built("mf", "interpolation")
    found = measures.predictions(measures.estimates(net, 3, 0), 3, likelihood, task)
    expected = (task.test_x[:, None] - task.all_x).square().sum(-1).amin(-1).sqrt()
    assert_equal(measures.distances(task), expected, 1e-6)
    task = dataclasses.replace(task, shown=torch.tensor([4, 17]))
    shown = measures.shown(found, task)
    assert shown["variance"] == pytest.approx(found["variance"][[4, 17]].tolist(), rel=5e-4)
    assert set(shown) == {"log_likelihood", "variance", "squared_error", "distance"}
    assert all(value == float(f"{value:.4g}") for values in shown.values() for value in values)


def test_variational_deep_gps_hold_points_out_and_may_stop(monkeypatch):
    """A score that falls at every strip ends them at once; the sparse GP has no score."""
    looks = itertools.count()
    monkeypatch.setattr(uci_run.HoldOut, "_score", lambda self, step, net: torch.tensor(-float(next(looks))))
    monkeypatch.setattr("experiments.lindinger2020.stopping.STRIP", 10)
    found = {m: uci_run.run(config(m, steps=90, stop_after=10), JOB) for m in ("sgp", "mf")}
    assert [found[m]["metrics"]["points"] for m in found] == [253, 228]
    assert [found[m]["metrics"]["stopped_early"] for m in found] == [False, True]
    assert [found[m]["metrics"]["steps"] for m in found] == [90, 70], "strips end at 20, 30, ...; five fall"


def test_the_bounds_error_is_that_of_its_mean(monkeypatch):
    monkeypatch.setattr(measures, "sampled_bounds", lambda *args: torch.tensor([1.0, 2.0, 4.0, 9.0], dtype=D))
    task = SimpleNamespace(x=torch.zeros(3, 1), y=torch.zeros(3, 1))
    found = measures.bound(None, None, task, 4, 0)
    assert found["elbo_stderr"] == pytest.approx(math.sqrt(38.0 / 3.0) / 2.0) and found["elbo_total"] == 12.0


def test_the_paper_grid_has_the_papers_settings_ten_times():
    grid = list(uci.tables("paper"))
    models = {(one.method, one.depth) for one in grid}
    assert len(set(grid)) == len(grid) == 8 * 2 * 10 * len(models) and len(models) == 15
    about = dict.fromkeys(("dataset", "task", "repetition", "method", "depth", "lr", "natural_lr"))
    defaults = dataclasses.asdict(StructuredConfig("", "", 0, "", 0))
    assert all(dataclasses.asdict(one) | about == defaults | about for one in grid)
    assert {one.lr for one in grid if one.method != "gi_bnn"} == {5e-3}
    assert {one.natural_lr for one in grid if one.method.endswith("_ng")} == {0.03}
    wanted = {"num_inducing": 128, "width": 5, "steps": 20_000, "batch_size": 512, "num_samples": 5}
    wanted |= {"lr": 5e-3, "decay": 0.98, "decay_every": 1000, "lengthscale": 1.0, "variance": 1.0}
    wanted |= {"noise_variance": 0.01, "hidden_scale": 1e-5, "held_out": 0.1, "test_samples": 1000}
    assert {name: defaults[name] for name in wanted} == wanted


def test_every_detail_is_one_change_of_a_training_of_the_tables():
    tables, found = set(uci.tables("reduced")), list(uci.details("reduced"))
    assert len(set(found)) == len(found) == 5 * 2 * len(uci.DETAILS) and not tables & set(found)
    plain = {"white": 0.0, "held_out": 0.0, "stop_after": StructuredConfig.stop_after}
    assert {dataclasses.replace(one, **plain) for one in found} <= tables
    changes = {tuple(name for name in plain if getattr(one, name) != plain[name]) for one in found}
    assert changes == {("white",), ("held_out", "stop_after")}
    assert {(one.dataset, one.task) for one in found} == {("energy", "extrapolation")}
