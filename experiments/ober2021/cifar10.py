"""CIFAR-10: accuracy, calibration and out-of-distribution detection.

Ober & Aitchison (2021), Sec. 3.4, App. L and O: Table 1, Fig. A5, Tables 3 and 4. Reduced scale, for a CPU,
has the paper's network, but few images, few inducing images and few steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

import gilib
from experiments.common import images
from experiments.common.images import ImageConfig
from experiments.common.measuring import significant
from experiments.common.methods import METHODS
from experiments.images import (
    ImageDataset,
    ImageNormalisation,
    ImageTensors,
    load_images,
    random_flip_and_crop,
)
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.data import ChecksumError, DataError

PRIORS = ("SpatialIWPrior (reference)", "ScalePrior", "SpatialIWPrior")
SIDE = 32  # pixels


@dataclass(frozen=True)
class CifarConfig(ImageConfig):
    """One training on the first images of CIFAR-10.

    Attributes:
        network: "resnet8", or "resnet18" with stages of 1, 2, 4 and 8 times as many channels.
        kl_weight: final factor of the Kullback-Leibler term; below 1 the posterior is cold.
        augment: whether images are flipped and cropped at random.
        outside: the set out of distribution, of which equally many test images are predicted.
    """

    network: str = "resnet8"
    kl_weight: float = 1.0
    augment: bool = False
    outside: str = "svhn"


SIZES: dict[str, dict[str, Any]] = {
    "smoke": {
        "images": 8,
        "test_images": 6,
        "channels": 2,
        "num_inducing": 4,
        "batch_size": 4,
        "steps": 3,
        "test_samples": 2,
        "elbo_samples": 2,
        "looks": 2,
        "look_images": 4,
    },
    "reduced": {
        "images": 2000,
        "test_images": 5000,
        "channels": 32,
        "num_inducing": 50,
        "batch_size": 50,
        "steps": 2000,
        "looks": 10,
        "look_images": 500,
    },
    "paper": {
        "images": 50_000,
        "test_images": 10_000,
        "channels": 32,
        "num_inducing": 500,
        "batch_size": 500,
        "steps": 100_000,
    },
}
SIZES["long"] = SIZES["paper"] | {"steps": 3000}  # 30 epochs: minutes on a GPU
WIDE = {"smoke": 1, "reduced": 8, "long": 64, "paper": 64}  # channels of the first stage of ResNet-18


def table_1(scale: str) -> Iterator[CifarConfig]:
    """Yield every method under every prior in the small network, then ResNet-18, augmented and cold.

    The paper has 1000 epochs of 100 steps, with the first 100 tempered. It could not train ResNet-18 with
    global inducing points in all layers, which is the last configuration here.
    """
    settings = SIZES[scale] | {"lr": 1e-2, "tempered_steps": SIZES[scale]["steps"] // 10}
    strangers = {"smoke": "mnist-500", "reduced": "fashion-mnist"}
    settings["outside"] = strangers.get(scale) or _out_of_distribution_sets()
    for prior in PRIORS if scale != "smoke" else PRIORS[:1]:
        for method in METHODS if scale != "smoke" else ("fac", "gi"):
            estimator = images.estimator_of(method)
            yield CifarConfig(method, prior, 0, **settings, estimator=estimator, scale=scale)
    cold = {"network": "resnet18", "channels": WIDE[scale], "kl_weight": 1 / 20, "augment": True}
    for method in ("fac", "fac_gi", "gi"):
        estimator = images.estimator_of(method)
        yield CifarConfig(method, PRIORS[0], 0, **(settings | cold), estimator=estimator, scale=scale)


def _out_of_distribution_sets() -> str:
    """Return "svhn", as in the paper, if it is on this machine, else "fashion-mnist".

    Raises:
        ChecksumError: if SVHN is damaged.
    """
    try:
        load_images("svhn", download=False)
    except ChecksumError:  # the file exists but is damaged
        raise
    except DataError:
        return "fashion-mnist"
    return "svhn"


def check(configs: Sequence[CifarConfig]) -> None:
    """Check that the images are on this machine, or can be downloaded."""
    for name in dict.fromkeys(["cifar10", *(config.outside for config in configs if config.outside)]):
        load_images(name)


@functools.lru_cache(2)
def _dataset(name: str) -> ImageDataset:
    return load_images(name)


def run(config: CifarConfig, job: Job) -> Record:
    """Train and measure one configuration.

    The metrics are bounds on the training images; log-likelihood, accuracy, calibration and mean entropy on
    the test images; and, for images out of distribution, their mean entropy, the ratio of mean entropies, and
    how well entropy detects them.
    """
    dataset, data, net, trained = _train(config, job)
    draw = images.drawn(net, config.test_samples, 4000 + config.seed)
    inside = gilib.prediction.CategoricalPrediction(images.log_probabilities(draw, data.test_x))
    strange = as_colour(_dataset(config.outside).test_x[: config.test_images], data.normalisation)
    outside = gilib.prediction.CategoricalPrediction(images.log_probabilities(draw, strange.to(data.test_x)))
    metrics = images.measure_bounds(net, config, data) | images.measure_test(inside, data.test_y)
    metrics |= compare_entropies(inside.mean, outside.mean)
    return images.record(dataset.label, dataset.sha256, trained, metrics)


def photographs(scale: str) -> Iterator[CifarConfig]:
    """Yield global inducing points in the small network, for predictions of single test images."""
    (config,) = (c for c in table_1(scale) if (c.network, c.prior, c.method) == ("resnet8", PRIORS[0], "gi"))
    asked = min(config.test_images, 100)
    yield replace(config, test_images=asked, test_samples=10 * config.test_samples, outside="")


def run_photographs(config: CifarConfig, job: Job) -> Record:
    """Train, and record the predictions of single test images.

    Returns:
        A record with the label, the mean class probabilities over draws, and the mean entropy of a draw, for
        each image.
    """
    dataset, data, net, trained = _train(config, job)
    draw = images.drawn(net, config.test_samples, 4000 + config.seed)
    log_probs = images.log_probabilities(draw, data.test_x)  # [S, N, O]
    mean = gilib.prediction.CategoricalPrediction(log_probs).mean
    within = gilib.metrics.entropy(log_probs.exp()).mean(0)
    found = {
        "labels": data.test_y.tolist(),
        "probabilities": [[round(value, 4) for value in row] for row in mean.tolist()],
        "expected_entropy": [significant(value) for value in within.tolist()],
    }
    return images.record(dataset.label, dataset.sha256, trained, found)


def _train(config: CifarConfig, job: Job) -> tuple[ImageDataset, ImageTensors, gilib.Network, images.Trained]:
    dataset = _dataset("cifar10").subset(config.images, config.test_images)
    data = dataset.tensors(job.device)
    net = images.build(_model(config), config, data)
    augment = random_flip_and_crop if config.augment else None
    return dataset, data, net, images.train(net, config, data, job, config.kl_weight, augment)


def _model(config: CifarConfig) -> Callable[..., gilib.Network]:
    """Return a builder of the network; ResNet-18 with inducing points has batch normalisation (App. O)."""
    if config.network == "resnet8":
        return functools.partial(gilib.models.resnet8, channels=config.channels)
    widths = tuple(config.channels * 2**stage for stage in range(4))
    return functools.partial(gilib.models.resnet18, widths=widths, batch_norm=config.method != "fac")


def as_colour(pixels: Tensor, normalisation: ImageNormalisation) -> Tensor:
    """Convert images of another set for the network: add black borders, and copy grey to three channels.

    Args:
        pixels: uint8 `[N, C, H, W]`, at most 32 pixels wide and high.
        normalisation: normalisation of the set on which the network was trained.

    Returns:
        `[N, 3, 32, 32]`, normalised.
    """
    height, width = (SIDE - size for size in pixels.shape[-2:])
    sides = (width // 2, width - width // 2, height // 2, height - height // 2)
    padded = pad(pixels, sides).expand(-1, 3, -1, -1)
    return normalisation.x(padded.to(normalisation.x_mean.device), torch.float32)


def compare_entropies(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """Compare entropies of class probabilities `[N, O]` in and out of distribution (App. L, Table 4)."""
    known, strange = gilib.metrics.entropy(inside), gilib.metrics.entropy(outside)
    return {
        "entropy_outside": float(strange.mean()),
        "entropy_ratio": float(known.mean() / strange.mean()),
        "auroc": float(gilib.metrics.auroc(strange, known)),
    }


EXPERIMENTS = {
    "cifar10": Experiment(
        "Tables 1, 3 and 4, Fig. A5: CIFAR-10, calibration and out of distribution",
        CifarConfig,
        table_1,
        one_by_one(run),
        check=check,
        scales=("smoke", "reduced", "long", "paper"),
    ),
    "cifar10_photographs": Experiment(
        "What global inducing points make of the first photographs of CIFAR-10, one by one",
        CifarConfig,
        photographs,
        one_by_one(run_photographs),
        check=check,
        scales=("smoke", "reduced", "long", "paper"),
    ),
}
