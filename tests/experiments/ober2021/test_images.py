"""The experiments on images: grids, starts, training in stretches, and what is measured."""

import dataclasses
import json
import os
import signal
import time
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import one_hot

import gilib
from experiments.common import images
from experiments.common.methods import METHODS
from experiments.images import ImageDataset, ImageNormalisation, load_images
from experiments.ober2021 import cifar10, mnist_500
from experiments.registry import EXPERIMENTS
from experiments.runner.experiment import Job
from experiments.runner.groups import select_configs
from experiments.runner.running import run_experiment
from gilib.data import ChecksumError, DataError
from gilib.persistence import CheckpointError
from gilib.training import Paused
from tests.experiments.recorded import CPU
from tests.support import D, assert_equal, forked, seeded

SMALL = next(mnist_500.figure_a7("smoke"))
DATA = load_images("mnist-500").subset(20, 10).tensors()


def small(method="gi", prior="NealPrior", **settings):
    settings = {"estimator": images.estimator_of(method)} | settings
    return dataclasses.replace(SMALL, method=method, prior=prior, **settings)


def job(folder, deadline=None):
    folder.mkdir(exist_ok=True)
    return Job(CPU, folder / "checkpoint", deadline)


def without_seconds(record):
    metrics = {name: value for name, value in record["metrics"].items() if name != "step_seconds"}
    return record | {"metrics": metrics}


def test_the_paper_trains_as_appendices_n_and_o_say():
    lenets = list(mnist_500.figure_a7("paper"))
    cells = {(config.method, config.prior) for config in lenets}
    assert {(m, p) for m in ("fac", "li", "gi", "fac_gi") for p in mnist_500.PRIORS} < cells
    assert {(c.lr, c.channels, c.images, c.test_images) for c in lenets} == {(1e-3, 64, 500, 10000)}
    resnets = list(cifar10.table_1("paper"))
    small, large = resnets[:12], resnets[12:]
    assert {(c.network, c.channels, c.kl_weight, c.augment) for c in small} == {("resnet8", 32, 1.0, False)}
    assert {(c.network, c.channels, c.kl_weight, c.augment) for c in large} == {("resnet18", 64, 0.05, True)}
    assert [config.method for config in large] == ["fac", "fac_gi", "gi"]
    for config in resnets:
        assert (config.lr, config.batch_size, config.num_inducing) == (1e-2, 500, 500)
        assert (config.steps, config.tempered_steps) == (1000 * 100, 100 * 100)
        assert (config.num_samples, config.test_samples, config.images) == (1, 10, 50_000)


@pytest.mark.parametrize("method", METHODS)
def test_networks_start_as_appendix_o_says(method):
    net = images.build(partial(gilib.models.lenet, channels=2), small(method), DATA)
    layers = [layer for layer in net.layers if layer.has_weights]
    first, last = layers[0].weights, layers[-1].weights
    if method in ("gi", "fac_gi"):
        assert_equal(net.inducing_points, DATA.train_x[:5])
        assert_equal(last.pseudo.outputs, one_hot(DATA.train_y[:5], 10).float())
    else:
        assert net.inducing_points is None
    if method == "gi":
        assert first.pseudo.outputs.shape == (5, 2, 28, 28)
        assert_equal(3.0 * first.pseudo.scaled_log_precision, torch.full((5,), -4.0))
    if method == "li":
        assert first.pseudo.outputs.shape == (9, 2)  # as many patches as inputs
        assert last.pseudo.outputs.shape == (5, 10)


@pytest.mark.parametrize("method", METHODS)
def test_a_training_that_is_stopped_at_every_step_ends_with_the_same_record(method, tmp_path):
    config = small(method, "ScalePrior", steps=7, looks=3)
    whole = mnist_500.run(config, job(tmp_path / "whole"))
    assert whole["looks"]["step"] == [3.0, 5.0, 7.0] and len(whole["curve"]) == 7
    stops = 0
    while True:
        try:
            pieces = mnist_500.run(config, job(tmp_path / "pieces", deadline=time.monotonic()))
            break
        except Paused:
            stops += 1
    assert stops == 4  # at every step but the last one of each stretch
    assert without_seconds(pieces) == without_seconds(whole)


def train_and_die(folder, look, moment):
    """Train, but be killed before or after the note of a look is written."""
    write = images.replace_file

    def fatal(path, content):
        looks = json.loads(content)
        if moment == "after" or len(looks["step"]) < look:
            write(path, content)
        if len(looks["step"]) == look:
            os.kill(os.getpid(), signal.SIGKILL)

    images.replace_file = fatal
    mnist_500.run(small("gi", "ScalePrior", steps=7, looks=3), job(folder))


@pytest.mark.slow
def test_a_training_that_is_killed_ends_with_the_same_record(tmp_path):
    """Killed between the checkpoint of a stretch and its look, and just after a look."""
    pieces = tmp_path / "pieces"
    for look, moment in ((1, "before"), (2, "after")):
        assert forked.run(train_and_die, pieces, look, moment) == -signal.SIGKILL
    config = small("gi", "ScalePrior", steps=7, looks=3)
    whole = mnist_500.run(config, job(tmp_path / "whole"))
    assert without_seconds(mnist_500.run(config, job(pieces))) == without_seconds(whole)


def test_looking_at_test_images_changes_nothing(tmp_path):
    once, often = (mnist_500.run(small(steps=6, looks=looks), job(tmp_path / str(looks))) for looks in (1, 6))
    assert once["curve"] == often["curve"]
    assert once["metrics"]["elbo"] == often["metrics"]["elbo"]


def test_bounds_are_those_of_the_whole_training_set():
    config = small(elbo_samples=3)
    net = images.build(partial(gilib.models.lenet, channels=2), config, DATA).requires_grad_(False)
    found = images.measure_bounds(net, config, DATA)
    draw = net.draw(3, generator=seeded(2000))
    every = gilib.elbo(draw, gilib.Categorical(), DATA.train_x, DATA.train_y, num_data=20, reduction="none")
    assert found["elbo"] == pytest.approx(float(every.mean()) / 20, rel=1e-5)
    assert found["elbo_stderr"] == pytest.approx(float(every.std()) / 20 / 3**0.5, rel=1e-4)
    whole = gilib.iwbo(draw, gilib.Categorical(), DATA.train_x, DATA.train_y)
    assert found["iwbo"] == pytest.approx(float(whole) / 20, rel=1e-5)
    assert found["elbo"] < found["iwbo"]


def test_predictions_are_measured_after_averaging_the_draws():
    log_probs = torch.randn(3, 40, 4, generator=seeded(0), dtype=D).mul(2).log_softmax(-1)
    labels = torch.randint(4, (40,), generator=seeded(1))
    found = images.measure_test(gilib.prediction.CategoricalPrediction(log_probs), labels)
    mean = log_probs.exp().mean(0).numpy()
    assert found["accuracy"] == pytest.approx(np.mean(mean.argmax(-1) == labels.numpy()), abs=1e-12)
    assert found["entropy"] == pytest.approx(stats.entropy(mean, axis=-1).mean(), rel=1e-12)
    assert found["test_log_likelihood"] == pytest.approx(np.log(mean[range(40), labels]).mean(), rel=1e-12)
    bins = found["calibration"]
    gaps = np.abs(np.subtract(bins["accuracy"], bins["confidence"])) * bins["counts"] / 40
    assert sum(bins["counts"]) == 40 and 0 not in bins["counts"]
    assert found["expected_calibration_error"] == pytest.approx(gaps.sum(), abs=1e-5)


def test_images_of_another_set_get_black_borders_and_three_channels():
    scales = ImageNormalisation(torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.1]))
    pixels = torch.randint(256, (4, 1, 28, 28), generator=seeded(0)).to(torch.uint8)
    shown = cifar10.as_colour(pixels, scales)
    assert shown.shape == (4, 3, 32, 32)
    for c, (mean, deviation) in enumerate([(0.5, 0.2), (0.4, 0.25), (0.3, 0.1)]):
        assert_equal(shown[:, c, 2:-2, 2:-2], (pixels[:, 0] / 255 - mean) / deviation, 1e-5)
        assert_equal(shown[:, c, :2], torch.full((4, 2, 32), -mean / deviation), 1e-5)
    colours = torch.randint(256, (2, 3, 32, 32), generator=seeded(1)).to(torch.uint8)
    assert_equal(cifar10.as_colour(colours, scales), scales.x(colours))


def test_entropies_in_and_out_of_distribution():
    known, strange = (torch.rand(n, 5, generator=seeded(n), dtype=D).pow(p) for n, p in ((30, 6), (50, 2)))
    known, strange = known / known.sum(-1, keepdim=True), strange / strange.sum(-1, keepdim=True)
    found = cifar10.compare_entropies(known, strange)
    low, high = stats.entropy(known.numpy(), axis=1), stats.entropy(strange.numpy(), axis=1)
    assert found["entropy_ratio"] == pytest.approx(low.mean() / high.mean(), rel=1e-12)
    assert found["auroc"] == pytest.approx(stats.mannwhitneyu(high, low).statistic / 1500, rel=1e-12)


@pytest.mark.parametrize(("error", "found"), [(None, "svhn"), (DataError("not here"), "fashion-mnist")])
def test_strangers_are_house_numbers_where_they_are(error, found, monkeypatch):
    load = Mock(side_effect=error)
    monkeypatch.setattr(cifar10, "load_images", load)
    assert {config.outside for config in cifar10.table_1("paper")} == {found}
    load.assert_called_with("svhn", download=False)
    load.side_effect = ChecksumError("damaged")
    with pytest.raises(ChecksumError, match="damaged"):
        list(cifar10.table_1("paper"))
    monkeypatch.setattr(cifar10, "_out_of_distribution_sets", None)  # nobody asks at other scales
    assert {config.outside for config in cifar10.table_1("reduced")} == {"fashion-mnist"}


def colours(name):
    """Ten images of noise in place of a set that does not come with the package."""
    if name != "cifar10":
        return load_images(name)
    x = torch.randint(256, (10, 3, 32, 32), generator=seeded(3)).to(torch.uint8)
    y = torch.arange(10)
    names = tuple(map(str, range(10)))
    return ImageDataset("cifar10", "noise", x, y, x, y, names, ImageNormalisation.fit(x))


@pytest.mark.parametrize("method", ["fac", "gi"])
def test_resnet_18_is_normalised_where_there_are_inducing_points(method):
    changes = {"method": method, "network": "resnet18", "channels": 1}
    config = dataclasses.replace(next(cifar10.table_1("smoke")), **changes)
    net = images.build(cifar10._model(config), config, colours("cifar10").tensors())
    kinds = [type(module) for module in net.modules()]
    assert kinds.count(gilib.Conv2d) == 20
    assert kinds.count(gilib.layers.InducingBatchNorm) == (20 if method == "gi" else 0)
    assert [layer.outputs for layer in net.modules() if isinstance(layer, gilib.Conv2d)][-1] == 8


def test_noise_for_every_pixel_is_of_the_past_and_damaged_notes_start_a_training_afresh(tmp_path):
    with pytest.raises(ValueError, match="fac has estimator='flipout', got ''"):
        mnist_500.run(small("fac", estimator=""), job(tmp_path / "job"))
    (tmp_path / "job" / "checkpoint.looks").write_text("")
    with pytest.raises(CheckpointError, match="checkpoint.looks is damaged"):
        mnist_500.run(small(steps=2, looks=1), job(tmp_path / "job"))


def flip(x, *, generator):
    return x.flip(-1)


def test_cold_posteriors_and_augmentation_reach_the_training(tmp_path):
    def curve(name, *settings):
        net = images.build(partial(gilib.models.lenet, channels=2), config, DATA)
        return images.train(net, config, DATA, job(tmp_path / name), *settings).elbo

    config = small(steps=4, looks=1, tempered_steps=2)
    plain, cold = curve("plain"), curve("cold", 0.5)
    assert plain[0] == cold[0] and not (plain[1:] == cold[1:]).any()
    flipped = curve("flipped", 1.0, flip)
    assert not torch.equal(plain[0], flipped[0])


@pytest.mark.slow
def test_the_smoke_runs(monkeypatch):
    """The small lenets train on real images; resnets on noise, because CIFAR-10 is not in the package."""
    monkeypatch.setattr(cifar10, "_dataset", colours)
    monkeypatch.setitem(EXPERIMENTS, "cifar10", dataclasses.replace(EXPERIMENTS["cifar10"], check=None))
    for name in ("mnist_500", "mnist_500_clock", "cifar10"):
        grid = select_configs(EXPERIMENTS[name], "smoke")
        ran = run_experiment(name, "smoke")
        assert (ran.added, ran.diverged, ran.left) == (len(grid), 0, 0)
