"""MNIST with 500 training images: four posteriors, four priors, and the bound of a trivial network.

Ober & Aitchison (2021), App. N, Fig. A7. The paper states network, learning rate and data. Batches, steps,
inducing points and draws are our choices. At reduced scale the network has half the channels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gilib
from experiments.common import images
from experiments.common.images import ImageConfig
from experiments.common.methods import METHODS
from experiments.images import ImageDataset, load_images
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record

PRIORS = ("StandardPrior", "NealPrior", "ScalePrior", "SpatialIWPrior (reference)")
BASELINE = math.log(1 / 10)  # bound and log-likelihood of a network with equal class probabilities


@dataclass(frozen=True)
class MnistConfig(ImageConfig):
    """One training on the first images of MNIST."""


def figure_a7(scale: str) -> Iterator[MnistConfig]:
    """Yield all methods under all priors, then global inducing under Eq. 2's scaling of SpatialIWPrior."""
    settings: dict[str, Any] = {"num_inducing": 100, "batch_size": 100, "tempered_steps": 0, "lr": 1e-3}
    seeds, methods = (3 if scale == "paper" else 1), METHODS
    if scale == "smoke":
        methods = ("fac", "gi")
        settings |= {"images": 20, "test_images": 10, "channels": 2, "num_inducing": 5, "batch_size": 10}
        settings |= {"steps": 4, "elbo_samples": 2, "test_samples": 2, "looks": 2, "look_images": 10}
    else:
        channels, steps = {"reduced": (32, 4000), "paper": (64, 20_000)}[scale]
        settings |= {"images": 500, "test_images": 10_000, "elbo_samples": 100}
        settings |= {"channels": channels, "steps": steps}
    for seed in range(seeds):
        for prior in PRIORS:
            for method in methods:
                estimator = images.estimator_of(method)
                yield MnistConfig(method, prior, seed, **settings, estimator=estimator, scale=scale)
        yield MnistConfig("gi", "SpatialIWPrior", seed, **settings, scale=scale)


def until_converged(scale: str) -> Iterator[MnistConfig]:
    """Yield the factorised posterior under StandardPrior, until its variances equal the prior's."""
    config = next(figure_a7(scale))
    yield config if scale == "smoke" else replace(config, steps=12_000, looks=60)


@functools.lru_cache(1)
def _dataset(name: str) -> ImageDataset:
    return load_images(name)


def _source(config: MnistConfig) -> str:
    """Return the set with a configuration's images: the part in the package, if that is large enough."""
    return "mnist-500" if config.images <= 500 and config.test_images <= 1000 else "mnist"


def check(configs: Sequence[MnistConfig]) -> None:
    """Check that the images are on this machine, or can be downloaded."""
    for name in dict.fromkeys(map(_source, configs)):
        load_images(name)


def run(config: MnistConfig, job: Job) -> Record:
    """Train; measure bounds on the training images, and predictions of the test images."""
    dataset = _dataset(_source(config)).subset(config.images, config.test_images)
    data = dataset.tensors(job.device)
    net = images.build(functools.partial(gilib.models.lenet, channels=config.channels), config, data)
    trained = images.train(net, config, data, job)
    draw = images.drawn(net, config.test_samples, 4000 + config.seed)
    prediction = gilib.prediction.CategoricalPrediction(images.log_probabilities(draw, data.test_x))
    metrics = images.measure_bounds(net, config, data) | images.measure_test(prediction, data.test_y)
    return images.record(dataset.label, dataset.sha256, trained, metrics)


EXPERIMENTS = {
    "mnist_500": Experiment(
        "Fig. A7: four methods and four priors on 500 images of MNIST",
        MnistConfig,
        figure_a7,
        one_by_one(run),
        check=check,
    ),
    "mnist_500_clock": Experiment(
        "The factorised posterior under StandardPrior on the same images, until its variances arrive",
        MnistConfig,
        until_converged,
        one_by_one(run),
        check=check,
    ),
}
