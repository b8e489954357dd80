"""The posteriors on images: the splits, the choice of settings, and one smoke run of each method."""

import dataclasses
import math

import pytest
import torch

import gilib
from experiments import RecordError, load_records
from experiments.comparisons import posteriors, posteriors_images, posteriors_run, tasks
from experiments.comparisons.methods import METHODS
from experiments.comparisons.posteriors_images import DATASET, ORDER, PRIORS, SEARCHED, Tuned
from experiments.images import load_images
from experiments.runner.identity import identity
from experiments.runner.running import run_experiment
from experiments.runner.writing import append
from gilib.data import DataError
from gilib.metrics import auroc, entropy


@pytest.fixture
def images():
    """Whole sets do not ship with gilib, and tests fetch nothing."""
    for name in (DATASET, "mnist"):
        try:
            load_images(name, download=False)
        except DataError:
            pytest.skip(f"{name} is not below GILIB_DATA")


@pytest.fixture
def searched():
    """A search in which the last setting of every method, and the last prior, is the best."""
    for k, trial in enumerate(posteriors_images.search("smoke")):
        settings = dataclasses.asdict(trial)
        head = {"id": identity("posteriors_images_search", trial), "experiment": "posteriors_images_search"}
        head["scale"] = settings.pop("scale")
        metrics = {"log_likelihood": float(k)}
        append("posteriors_images_search", [head | {"config": settings, "metrics": metrics}])


@pytest.mark.usefixtures("images")
def test_splits_share_no_image_and_validation_reads_no_test_image_of_its_set():
    first, second = (tasks.image_task(DATASET, split, 50) for split in (0, 1))
    data = load_images(DATASET)
    assert torch.equal(first.y, data.train_y[:50]) and torch.equal(second.y, data.train_y[50:100])
    assert len(first.test_x) == len(first.other) == len(data.test_x) and first.outputs == 10
    scaled = data.normalisation.x(data.train_x[50:100], torch.float32).flatten(1)
    torch.testing.assert_close(second.x, scaled, rtol=0, atol=0)
    inner = tasks.image_task(DATASET, 0, 50, validation=True)
    torch.testing.assert_close(torch.cat([inner.x, inner.test_x]), first.x, rtol=0, atol=0)
    assert torch.equal(torch.cat([inner.y, inner.test_y]), first.y) and len(inner.test_y) == 10
    with pytest.raises(ValueError, match="ends at 65000, and fashion-mnist has 60000"):
        tasks.image_task(DATASET, 12, 5000)


def test_settings_follow_the_search_and_bali_that_of_its_own_images(searched, results):
    found = posteriors_images.chosen_settings("smoke")
    last = {name: values[-1] for name, values in SEARCHED.items()}
    assert {name: found[name].setting for name in last} == last
    fixed = {name for name in found if found[name].prior != PRIORS[-1]}
    assert fixed == {"map", "ensemble", "laplace", "sgp", "dgp_gi", "dsvi"}
    assert found["ensemble"] == found["laplace"] == found["map"]
    own = {c.method: c.bali for c in posteriors_images.tables("smoke") if c.bali}
    assert {name: each.prior for name, each in own.items()} == posteriors.BALI
    assert own["bali"] == own["bali_l"] and own["bali"].lr == 1.0 and own["bali"].v0 == 10.0
    (results / "posteriors_images_search.jsonl").write_text("")
    with pytest.raises(RecordError, match="run posteriors_images_search --scale smoke"):
        list(posteriors_images.tables("smoke"))


@pytest.mark.usefixtures("images")
def test_priors_are_tried_with_the_best_setting_once_it_is_known(searched, results):
    """And a prior that is tried reaches the network."""
    trials = list(posteriors_images.search("smoke"))
    others = [trial for trial in trials if trial.prior != posteriors.PRIOR_VARIANCE]
    assert {(t.method, t.setting) for t in others} == {
        (name, values[-1]) for name, values in SEARCHED.items() if name not in ("map", *posteriors.PROCESSES)
    }
    assert [t.prior for t in others if t.method == "bbb"] == list(PRIORS)
    (results / "posteriors_images_search.jsonl").write_text("")
    assert [t for t in trials if t not in others] == list(posteriors_images.search("smoke"))
    on = tasks.image_task(DATASET, 0, 50)
    for trial in (others[0], dataclasses.replace(others[0], prior=posteriors.PRIOR_VARIANCE)):
        net = METHODS[trial.method].network(trial, on)
        assert next(iter(net.layers)).prior == gilib.NealPrior(math.sqrt(trial.prior))


@pytest.mark.usefixtures("images")
def test_every_method_runs_and_most_beat_guessing(searched):
    """At smoke scale, where inducing points and processes have hardly moved."""
    assert run_experiment("posteriors_images", "smoke").added == len(ORDER)
    found = {r["config"]["method"]: r for r in load_records("posteriors_images")}
    assert list(found) == list(ORDER)
    better = 0
    for name, own in found.items():
        metrics = own["metrics"]
        assert all(math.isfinite(value) for value in metrics.values()), name
        assert ("elbo" in metrics) == METHODS[name].bound and 0.0 <= metrics["auroc"] <= 1.0, name
        assert "noise_variance" not in metrics and own["config"]["images"] == 200
        better += metrics["error"] < 0.8
    assert better > len(ORDER) // 2


@pytest.mark.usefixtures("images")
def test_strange_images_are_told_by_their_entropy():
    """A record's area is that of the entropies of both sets, by the definition over all pairs."""
    config = posteriors_images._config("map", 0, "smoke", Tuned(10.0))
    on = tasks.image_task(DATASET, 0, config.images)
    on = dataclasses.replace(on, test_x=on.test_x[:60], test_y=on.test_y[:60], other=on.other[:40])
    net = METHODS["map"].network(config, on)
    likelihood = posteriors_run._likelihood(METHODS["map"], on)
    found = posteriors_run._measured(config, net, likelihood, on)
    with torch.no_grad():
        inside, outside = (entropy(net.draw(1)(x)[0].softmax(-1)) for x in (on.test_x, on.other))
    pairs = (outside[:, None] > inside).double() + 0.5 * (outside[:, None] == inside)
    assert found["auroc"] == pytest.approx(float(pairs.mean()), abs=1e-5)
    assert found["auroc"] == pytest.approx(float(auroc(outside, inside)), abs=1e-5)
