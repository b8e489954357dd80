"""Code for experiments on images: networks, training with intermediate tests, and measures of classifiers."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

import gilib
from experiments.common.measuring import significant
from experiments.common.methods import PRIORS, Posteriors, ends_global, posterior_of
from experiments.images import ImageTensors
from experiments.runner.experiment import Job
from experiments.runner.records import Record
from gilib.files import replace_file
from gilib.objectives import SteppedTempering
from gilib.persistence import CheckpointError
from gilib.training.engine.minibatches import Augmentation

CURVE = 60  # recorded points of a training curve
EVALUATED_AT_ONCE = 2000  # draws × images, which limits the memory of a hidden layer


@dataclass(frozen=True)
class ImageConfig:
    """One training of one network on images.

    Attributes:
        method: a method of `posterior_of`.
        prior: prior of all layers, a key of `PRIORS`; "(reference)" means the reference code's scaling.
        seed: seed of initial values, minibatches and noise.
        images: number of training images, the first of the set.
        test_images: number of test images, the first of the set.
        channels: channels of every convolution.
        num_inducing: M, the number of inducing images, the first training images. For local inducing points,
            M of the last layer; convolutions then have as many patches as inputs.
        batch_size: images per step.
        steps: gradient steps.
        tempered_steps: number of first steps, in which the Kullback-Leibler term is blended in (App. O).
        lr: learning rate.
        num_samples: draws per step.
        test_samples: draws for predictions.
        elbo_samples: draws for the bounds.
        looks: number of tests during training, for the curves alone.
        look_images: number of images in each of these tests.
        estimator: estimator of a step's bound, see `estimator_of`. Old records of "fac" have "": noise for
            every pixel of a hidden image, which is the bound of another posterior and no longer used.
        scale: "smoke", "reduced", "long" or "paper".
    """

    method: str
    prior: str
    seed: int
    images: int
    test_images: int
    channels: int
    num_inducing: int
    batch_size: int
    steps: int
    tempered_steps: int
    lr: float
    num_samples: int = 1
    test_samples: int = 10
    elbo_samples: int = 10
    looks: int = 20
    look_images: int = 1000
    estimator: str = ""
    scale: str = "paper"


def estimator_of(method: str) -> str:
    """Return a method's estimator: "flipout", a kernel for every image, for "fac"; else "", one draw."""
    return "flipout" if method == "fac" else ""


def images_posterior(config: ImageConfig) -> Posteriors:
    """Return the posterior of a method; global inducing points have one precision for each image."""
    last_local = functools.partial(gilib.LocalInducing, num_inducing=config.num_inducing)
    return posterior_of(config.method, local=lambda: (gilib.LocalInducing(), last_local()))


def build(model: Callable[..., gilib.Network], config: ImageConfig, data: ImageTensors) -> gilib.Network:
    """Build a network; inducing images and last pseudo-outputs start at the first training data (App. O).

    Args:
        model: a function such as `gilib.models.lenet`, with its channels set.
        config: posterior, prior and seed.
        data: the images.
    """
    points: dict[str, Any] = {}
    if ends_global(config.method):
        labels = data.train_y[: config.num_inducing].cpu()
        points["inducing_points"] = data.train_x[: config.num_inducing].cpu()
        points["pseudo_outputs"] = one_hot(labels, 10).to(data.train_x.dtype)
    net = model(
        tuple(data.train_x.shape[1:]),
        posterior=images_posterior(config),
        prior=PRIORS[config.prior],
        generator=torch.Generator().manual_seed(1000 + config.seed),
        dtype=data.train_x.dtype,
        **points,
    )
    return net.to(data.train_x.device)


@dataclass(frozen=True)
class Trained:
    """The results of a training, besides its network.

    Attributes:
        elbo: estimate before every step, `[steps]`, nats per training image; tempered in the first steps.
        looks: results of the tests during training: lists "step", "test_log_likelihood", "accuracy".
        step_seconds: mean time of the steps of this process; None if there were none.
    """

    elbo: Tensor
    looks: dict[str, list[float]]
    step_seconds: float | None


def train(
    net: gilib.Network,
    config: ImageConfig,
    data: ImageTensors,
    job: Job,
    kl_weight: float = 1.0,
    augment: Augmentation | None = None,
) -> Trained:
    """Train in stretches, and test on some images after each.

    Stretches share one checkpoint, and test results are saved beside it. An interrupted training resumes
    there and ends with the same result.

    Args:
        net: the network, trained in place.
        config: the settings.
        data: the images.
        job: device, checkpoint and deadline.
        kl_weight: final factor of the Kullback-Leibler term; below 1 the posterior is cold.
        augment: augmentation of the images of every step.
    """
    assert job.checkpoint is not None, "looks are kept beside a checkpoint"
    notes = job.checkpoint.with_suffix(".looks")
    looks = _read(notes)
    elbo, seconds, steps = torch.empty(0), 0.0, 0
    for k in range(len(looks["step"]), config.looks + 1):  # the last takes no steps: it reads the trace
        end = min(config.steps, math.ceil(config.steps * (k + 1) / config.looks))
        began = time.perf_counter()
        history = _fit(net, config, data, job, end, kl_weight, augment)
        elbo, seconds = history.elbo, seconds + time.perf_counter() - began
        steps += end - history.resumed_at
        if k < config.looks:
            looks = _evaluate_test_images(net, config, data, looks, end)
            replace_file(notes, json.dumps(looks).encode())
    return Trained(elbo, looks, seconds / steps if steps else None)


def _fit(
    net: gilib.Network,
    config: ImageConfig,
    data: ImageTensors,
    job: Job,
    steps: int,
    kl_weight: float,
    augment: Augmentation | None,
) -> gilib.training.History:
    """Train, or resume training, up to a number of steps."""
    if config.estimator != estimator_of(config.method):
        raise ValueError(
            f"{config.method} has estimator={estimator_of(config.method)!r}, got {config.estimator!r}"
        )
    return gilib.fit(
        net,
        gilib.Categorical(),
        data.train_x,
        data.train_y,
        steps=steps,
        batch_size=config.batch_size,
        num_samples=config.num_samples,
        rule=gilib.Adam(config.lr),
        seed=config.seed,
        estimator="pointwise" if config.estimator else "draw",
        kl_weight=SteppedTempering(config.tempered_steps, last=kl_weight),
        augment=augment,
        **job.fit_options(every=config.steps),
    )


def _evaluate_test_images(
    net: gilib.Network, config: ImageConfig, data: ImageTensors, looks: dict[str, list[float]], step: int
) -> dict[str, list[float]]:
    """Append the results of a test on the first test images."""
    draw = drawn(net, config.test_samples, 3000 + config.seed)
    labels = data.test_y[: config.look_images]
    log_probs = log_probabilities(draw, data.test_x[: config.look_images])
    prediction = gilib.prediction.CategoricalPrediction(log_probs)
    seen = {
        "step": float(step),
        "test_log_likelihood": significant(float(prediction.log_prob(labels).mean())),
        "accuracy": significant(float(gilib.metrics.accuracy(prediction.mean, labels))),
    }
    return {name: [*values, seen[name]] for name, values in looks.items()}


def _read(notes: Path) -> dict[str, list[float]]:
    if not notes.exists():
        return {"step": [], "test_log_likelihood": [], "accuracy": []}
    try:
        content: dict[str, list[float]] = json.loads(notes.read_text())
    except ValueError as error:
        raise CheckpointError(f"{notes} is damaged: {error}") from error
    return content


@torch.no_grad()
def drawn(net: gilib.Network, samples: int, seed: int) -> gilib.Draw:
    """Draw functions for measurements."""
    device = next(net.parameters()).device
    return net.draw(samples, generator=torch.Generator(device).manual_seed(seed))


@torch.no_grad()
def log_probabilities(draw: gilib.Draw, x: Tensor) -> Tensor:
    """Return log-probabilities of classes, `[S, N, O]`, of images `[N, C, H, W]`, computed in batches."""
    size = max(1, EVALUATED_AT_ONCE // draw.density.numel())
    return torch.cat([draw(batch).log_softmax(-1) for batch in x.split(size)], -2)


def measure_bounds(net: gilib.Network, config: ImageConfig, data: ImageTensors) -> dict[str, float]:
    """Measure the ELBO, its standard error over draws, and the importance-weighted bound, per image."""
    draw = drawn(net, config.elbo_samples, 2000 + config.seed)
    log_probs = log_probabilities(draw, data.train_x)
    chosen = log_probs.gather(-1, data.train_y.expand(log_probs.shape[:-1])[..., None])
    bounds = chosen.double().sum((-2, -1)) + draw.density.double()  # [S]
    count = len(data.train_y)
    return {
        "elbo": float(bounds.mean()) / count,
        "elbo_stderr": float(bounds.std()) / math.sqrt(len(bounds)) / count,
        "iwbo": float(gilib.metrics.log_mean_exp(bounds)) / count,
        "train_log_likelihood": float(chosen.mean()),
    }


def measure_test(prediction: gilib.prediction.CategoricalPrediction, labels: Tensor) -> dict[str, Any]:
    """Measure log-likelihood, accuracy, calibration (20 bins) and mean entropy of predictions."""
    mean = prediction.mean
    curve = gilib.metrics.calibration_curve(mean, labels)
    filled = curve.counts > 0
    return {
        "test_log_likelihood": float(prediction.log_prob(labels).mean()),
        "accuracy": float(gilib.metrics.accuracy(mean, labels)),
        "expected_calibration_error": float(curve.error),
        "entropy": float(gilib.metrics.entropy(mean).mean()),
        "calibration": {
            "confidence": [significant(v) for v in curve.confidence[filled].tolist()],
            "accuracy": [significant(v) for v in curve.accuracy[filled].tolist()],
            "counts": curve.counts[filled].tolist(),
        },
    }


def record(data_name: str, sha256: str, trained: Trained, metrics: dict[str, Any]) -> Record:
    """Return the body of a record: metrics with six digits, the thinned curve, and the tests."""
    every = max(1, len(trained.elbo) // CURVE)
    means = trained.elbo[: len(trained.elbo) // every * every].reshape(-1, every).mean(1)
    return {
        "data": {"name": data_name, "sha256": sha256},
        "metrics": {
            name: significant(value) if isinstance(value, float) else value
            for name, value in (metrics | {"step_seconds": trained.step_seconds}).items()
        },
        "curve": [significant(value) for value in means.tolist()],
        "looks": trained.looks,
    }
