"""The classification benchmarks of BALI: data, settings, looks, measures, and one record of each kind."""

import dataclasses
import math
import statistics

import pytest
import torch

import gilib
from experiments import select
from experiments.images import ImageNormalisation, load_images
from experiments.kurle2024 import measures, search, settings, tasks, training
from experiments.kurle2024.training import CurveRecorder, TrainingConfig, look_steps
from experiments.registry import EXPERIMENTS
from experiments.runner.experiment import Job
from experiments.runner.groups import select_configs
from gilib.data import Dataset, load_uci
from gilib.training import Bali, Checkpoint, Paused
from tests.experiments.recorded import CPU, JOB
from tests.support import D, normals

NAMES = ("bali_settings", "bali_tabular", "bali_images", "bali_convergence")


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    """Forty points that a line separates, by the name of every table."""
    x = normals(40, 2)
    data = Dataset("line", x, (x.sum(1) > 0).long(), class_names=("below", "above"))
    monkeypatch.setattr(tasks, "load_classification", lambda name: data)
    return data


def config(**given):
    settings = {"dataset": "spambase", "method": "bali", "split": 0, "steps": 8, "lr": 0.3}
    settings |= {"prior_variance": 10.0, "width": 5, "looks": 3, "samples": 3, "scale": "smoke"}
    return TrainingConfig(**settings | given)


@pytest.mark.parametrize("stage", tasks.STAGES)
def test_test_points_are_read_when_settings_are_frozen(tables, stage):
    task, split = tasks.load("spambase", 3, stage, 0, CPU), tables.split(3)
    train = split.train_x
    if stage == "final":
        assert torch.equal(task.train.x, train) and torch.equal(task.monitored.x, split.test_x)
    else:
        assert torch.equal(torch.cat([task.train.x, task.monitored.x]), train) and len(task.monitored) == 3
    measured = task.monitored if stage == "search" else task
    assert torch.equal(task.test.x, measured.x if stage == "search" else split.test_x)
    assert len(tasks.load("spambase", 3, stage, 7, CPU).train) == 7


def test_images_are_flat_and_seen_in_their_own_units(monkeypatch):
    small = load_images("mnist-500")
    task = tasks.load("mnist-500", 0, "curve", 0, CPU)
    assert task.classes == 10 and len(task.train) == 450 and len(task.monitored) == 50
    assert torch.equal(task.train.x, small.tensors().train_x[:450].flatten(1))
    units = ImageNormalisation(torch.tensor([0.5], dtype=D), torch.tensor([0.1], dtype=D))
    brighter = dataclasses.replace(small, name="mnist", test_x=255 - small.test_x, normalisation=units)
    sets = {"mnist": small, "fashion-mnist": brighter}
    monkeypatch.setattr(tasks, "load_images", sets.get)
    other = tasks.other_images("mnist", 9, CPU)
    tasks.other_images.cache_clear()
    assert torch.equal(other, small.normalisation.x(brighter.test_x[:9], torch.float32).flatten(1))


def test_regressions_keep_their_units():
    yacht = load_uci("yacht")
    task = tasks.load("yacht", 1, "final", 0, CPU)
    assert math.exp(task.log_scale) == pytest.approx(float(yacht.split(1).normalisation.y_std))
    found = measures.run(config(dataset="yacht", split=1, method="map"), JOB)
    looks, last = found["looks"], found["metrics"]
    assert last["rmse"] == pytest.approx(looks["look_rmse"][-1] * math.exp(task.log_scale), rel=1e-4)
    assert last["log_likelihood"] == pytest.approx(-looks["look_nll"][-1], rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_grids_have_records(name):
    experiment = EXPERIMENTS[name]
    first = select_configs(experiment, "smoke")[0]
    if first.dataset == "mnist-500":
        first = dataclasses.replace(first, images=30)
    (found,) = experiment.run([first], JOB)
    if first.dataset != "yacht":
        assert 0.0 <= found["metrics"]["accuracy"] <= 1.0 and 0.0 <= found["metrics"]["auc"] <= 1.0
    assert found["metrics"]["log_likelihood"] < 0.0 and found["looks"]["step"][-1] == first.steps
    for scale in ("reduced", "paper"):
        grid = select_configs(experiment, scale)
        assert all((c.stage == "search") == (name == "bali_settings") for c in grid)
        for c in (c for c in grid if c.stage != "search"):
            assert settings.frozen(c.dataset, c.method).items() <= dataclasses.asdict(c).items()


SETS = {"tables": ("spambase", "telescope"), "images": ("mnist",), "regressions": ("yacht", "energy")}
SEARCHED = [(kind, name) for kind in ("tables", "images") for name in settings.CENTRE]
SEARCHED += [("regressions", name) for name in settings.ADAM]


@pytest.mark.parametrize(("kind", "method"), SEARCHED)
def test_frozen_settings_are_the_best_of_the_recorded_search(kind, method, kept):
    """By the mean log-likelihood of validation points, among those recorded on all sets of the kind."""
    names, sets, found = ("lr", "prior_variance", "update_rate", "dropout"), SETS[kind], {}
    for record in select("bali_settings", method=method):
        if (own := record["config"])["dataset"] in sets:
            setting = tuple(own[name] for name in names)
            found.setdefault(setting, []).append(record["metrics"]["log_likelihood"])
    whole = {setting: sum(scores) for setting, scores in found.items() if len(scores) == len(sets)}
    best = max(whole, key=whole.get)
    frozen = dataclasses.asdict(config(**{"method": method} | settings.FROZEN[kind][method]))
    assert best == tuple(frozen[name] for name in names)


def test_bali_has_the_best_of_the_recorded_search_on_regressions(kept):
    """Of our prior, by the mean over yacht and energy."""
    known = search.scores("reduced", ("yacht", "energy"))
    means = {k: statistics.mean(map(statistics.mean, own.values())) for k, own in known.items()}
    best = max((k for k in means if k.prior == "absolute"), key=means.__getitem__)
    frozen = config(**{"method": "bali"} | settings.FROZEN["regressions"]["bali"])
    assert (best.v0, best.lr, best.update_rate) == (frozen.prior_variance, frozen.lr, frozen.update_rate)


def test_methods_differ_by_rule_and_posterior():
    rules = {method: training.settings_of(config(method=method)) for method in training.METHODS}
    assert rules["bali"]["rule"] == Bali(0.3) and rules["bali_paper"]["rule"].prior == "relative"
    assert rules["bali_l"] == rules["bali"] | {"estimator": "pointwise"}
    assert {type(rules[name]["rule"]) for name in ("map", "dropout", "bbb")} == {gilib.Adam}
    kinds = {method: type(training.posterior_of(config(method=method))) for method in training.METHODS}
    assert kinds["map"] is gilib.PointEstimate and kinds["bali_l"] is gilib.posteriors.Conjugate


def test_looks_are_resumed(tmp_path, monkeypatch):
    """Paused after the middle, a training goes on to the same looks; but for the clock."""
    whole = measures.run(config(steps=20), JOB)
    path = tmp_path / "checkpoint"
    with monkeypatch.context() as patch, pytest.raises(Paused):
        kept = Checkpoint(path, 10, 0.0)
        patch.setattr(Job, "fit_options", lambda self, every: {"checkpoint": kept, "progress": False})
        measures.run(config(steps=20), JOB)
    resumed = measures.run(config(steps=20), Job(CPU, path))
    for looks in (whole["looks"], resumed["looks"]):
        del looks["seconds"]
    assert whole["looks"] == resumed["looks"]
    assert resumed["metrics"]["log_likelihood"] == whole["metrics"]["log_likelihood"]


def test_the_clock_stands_still_while_curves_are_measured(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr(training.time, "process_time", lambda: float(next(ticks)))
    recorder = CurveRecorder([1, 3], lambda: {"nll": float(next(ticks))})  # measuring takes two ticks
    recorder.begin()
    for step in (1, 2, 3):
        recorder(step, torch.zeros(()), None)
    assert recorder.curves["step"] == [1, 3] and recorder.curves["seconds"] == [1.0, 3.0]
    assert look_steps(80, 25)[0] == 1 and look_steps(80, 25)[-1] == 80 and look_steps(7, 1) == [7]


def test_points_out_of_distribution_are_told_apart():
    sure, unsure = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[0.5, 0.5], [0.85, 0.15]])
    found = measures.told_apart(sure, unsure)
    assert found["auroc_entropy"] == found["auroc_top"] == 0.75
    assert found["roc_entropy"][0] == 0.5 and found["roc_entropy"][-1] == 1.0
    assert len(found["roc_top"]) == len(found["false_positive_rates"])


def test_the_prior_has_the_given_variance_and_the_split_is_the_seed(monkeypatch):
    given = TrainingConfig("yacht", "map", 3, 8, 0.1, 10.0, width=5, looks=3)
    task = tasks.load("yacht", 3, "final", 0, CPU)
    net, likelihood = training.build(given, task)
    first = next(layer for layer in net.layers if layer.has_weights)
    assert first.prior == gilib.NealPrior(math.sqrt(10.0))
    seeds = []
    monkeypatch.setattr(gilib, "fit", lambda *args, seed, **rest: seeds.append(seed))
    training.train(given, task, net, likelihood, JOB)
    assert seeds == [3]


def test_rankings_are_those_of_scikit_learn():
    reference = pytest.importorskip("sklearn.metrics")
    inside, outside = (normals(n, 3, seed=n).mul(s).softmax(-1) for n, s in ((40, 2.0), (70, 1.0)))
    labels, truth = torch.arange(40) % 3, torch.arange(110) >= 40
    area = reference.roc_auc_score(labels, inside, multi_class="ovr")
    assert measures.classified(inside, labels)["auc"] == pytest.approx(area, abs=1e-9)
    false, true, _ = reference.roc_curve(truth, -torch.cat([inside, outside]).max(-1).values)
    found = measures.told_apart(inside, outside)
    best = [true[false <= rate + 1e-9].max() for rate in found["false_positive_rates"]]
    assert found["roc_top"] == pytest.approx(best, abs=1e-4)
