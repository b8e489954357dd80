"""Train BALI or a method that it is compared with, and measure held-out points during training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import gilib
from experiments.common.measuring import significant
from experiments.kurle2024.tasks import Points, Task
from experiments.runner.experiment import Job
from gilib.objectives import SteppedTempering
from gilib.training import Bali, CosineDecay
from gilib.training.callbacks import Callback

CURVE_POINTS = 1000  # points of each set at which curves are measured
LOOK_SAMPLES = 20
EVALUATED_AT_ONCE = 50_000  # draws × points
BALI = {"bali": "absolute", "bali_l": "absolute", "bali_paper": "relative"}  # the prior of each variant
METHODS = (*BALI, "map", "dropout", "bbb")


@dataclass(frozen=True)
class TrainingConfig:
    """One training.

    Attributes:
        dataset: see `experiments.kurle2024.tasks.load`.
        method: "bali" with our prior, "bali_paper" with the paper's, or "bali_l", which samples outputs; and,
            trained by Adam, "map", "dropout" and "bbb" (Bayes by Backprop).
        split: number of the split, which is also the seed of initial values, minibatches and noise.
        steps: iterations.
        lr: α of BALI, or Adam's learning rate.
        prior_variance: v_0, for weights whose inputs are divided by the root of their number.
        batch_size: points per step; at most all.
        update_rate: β of BALI.
        kl_weight: factor of the Kullback-Leibler term of Bayes by Backprop.
        dropout: probability of a zero.
        width: width of the hidden layers.
        depth: number of hidden layers.
        stage: "search", "curve" or "final", see `load`.
        images: number of training images; 0 for all.
        looks: number of measurements during training, at a geometric sequence of steps.
        samples: draws for the final measurements.
        decay: whether rates fall to a tenth in the second half. α also determines the noise of a layer's
            pseudo-targets, so the posterior narrows as α falls.
        scale: scale of the experiment.
    """

    dataset: str
    method: str
    split: int
    steps: int
    lr: float
    prior_variance: float
    batch_size: int = 1000
    update_rate: float = 0.2
    kl_weight: float = 1.0
    dropout: float = 0.1
    width: int = 200
    depth: int = 2
    stage: str = "final"
    images: int = 0
    looks: int = 25
    samples: int = 50
    decay: bool = True
    scale: str = "paper"


def posterior_of(config: TrainingConfig) -> gilib.posteriors.Posterior:
    """Return the posterior over the weights."""
    if config.method in BALI:
        return gilib.posteriors.Conjugate()
    makers: dict[str, Callable[[], gilib.posteriors.Posterior]] = {
        "map": gilib.PointEstimate,
        "dropout": lambda: gilib.posteriors.Dropout(config.dropout),
        "bbb": gilib.Factorised,
    }
    return makers[config.method]()


def build(config: TrainingConfig, task: Task) -> tuple[gilib.Network, gilib.likelihoods.Likelihood]:
    """Build network and likelihood; the noise of a regression is learned."""
    net = gilib.models.mlp(
        task.train.x.shape[1],
        (config.width,) * config.depth,
        task.classes or 1,
        posterior=posterior_of(config),
        prior=gilib.NealPrior(math.sqrt(config.prior_variance)),
        activation=nn.ReLU,
        generator=torch.Generator().manual_seed(1000 + config.split),
    )
    likelihood = gilib.Categorical() if task.classes else gilib.Gaussian(1.0, learn=True)
    device = task.train.x.device
    return net.to(device), likelihood.to(device)


def settings_of(config: TrainingConfig) -> dict[str, Any]:
    """Return the arguments of `gilib.fit` that the method determines; all share a schedule of rates."""
    schedule = CosineDecay() if config.decay else None
    if config.method in BALI:
        rule = Bali(config.lr, config.update_rate, BALI[config.method], schedule)
        return {"rule": rule, "estimator": "pointwise" if config.method == "bali_l" else "draw"}
    settings: dict[str, Any] = {"rule": gilib.Adam(config.lr, schedule=schedule)}
    settings["estimator"] = "draw" if config.method == "map" else "pointwise"
    if config.kl_weight != 1.0:
        settings["kl_weight"] = SteppedTempering(0, last=config.kl_weight)
    return settings


def look_steps(steps: int, looks: int) -> list[int]:
    """Return the steps after which to measure, a geometric sequence without repetitions.

    >>> look_steps(100, 4)
    [1, 5, 22, 100]
    """
    if looks < 2:
        return [steps]
    return sorted({round(steps ** (k / (looks - 1))) for k in range(looks)})


class CurveRecorder(Callback):
    """Measure after some steps, and record the processor seconds of the steps alone.

    Attributes:
        curves: lists by name: "step", "seconds", and the measured names.
    """

    reads_only = True

    def __init__(self, at: Sequence[int], measure: Callable[[], dict[str, float]]):
        """Store the arguments.

        Args:
            at: steps after which to measure.
            measure: returns measurements by name, with the same names at every call.
        """
        self.at, self.measure = frozenset(at), measure
        self.begin()

    def begin(self) -> None:
        """Forget all measurements, at the start of a training."""
        self.curves: dict[str, list[float]] = {}
        self.seconds, self.started = 0.0, time.process_time()

    def __call__(self, step: int, bound: torch.Tensor, net: gilib.Network) -> None:
        """Measure after the chosen steps, while the clock is stopped."""
        now = time.process_time()
        self.seconds, self.started = self.seconds + now - self.started, now
        if step not in self.at:
            return
        values = {"step": step, "seconds": round(self.seconds, 3)}
        values |= {name: significant(value) for name, value in self.measure().items()}
        for name, value in values.items():
            self.curves.setdefault(name, []).append(value)
        self.started = time.process_time()

    def state_dict(self) -> dict[str, Any]:
        """Return the measurements and the seconds so far."""
        return {
            "curves": {name: list(values) for name, values in self.curves.items()},
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.curves, self.seconds, self.started = state["curves"], state["seconds"], time.process_time()


def predicted(
    net: gilib.Network, likelihood: gilib.likelihoods.Likelihood, x: torch.Tensor, samples: int, seed: int
) -> gilib.prediction.Prediction:
    """Predict points with `samples` draws; one draw is enough for a point estimate."""
    generator = torch.Generator(x.device).manual_seed(seed)
    size = max(1, EVALUATED_AT_ONCE // samples)
    return gilib.predict(net, likelihood, x, samples, batch_size=size, generator=generator)


def train(
    config: TrainingConfig, task: Task, net: gilib.Network, likelihood: gilib.likelihoods.Likelihood, job: Job
) -> CurveRecorder:
    """Train in place; return what was seen on the way."""
    samples = 1 if config.method == "map" else min(LOOK_SAMPLES, config.samples)
    trained, monitored = task.train.first(CURVE_POINTS), task.monitored.first(CURVE_POINTS)

    def measure() -> dict[str, float]:
        at = {"train": trained, "look": monitored}
        found = {
            name: _measured(config, task, net, likelihood, points, samples) for name, points in at.items()
        }
        return {f"{name}_{key}": value for name, values in found.items() for key, value in values.items()}

    looks = CurveRecorder(look_steps(config.steps, config.looks), measure)
    gilib.fit(
        net,
        likelihood,
        task.train.x,
        task.train.y,
        steps=config.steps,
        batch_size=min(config.batch_size, len(task.train)),
        num_samples=1,
        seed=config.split,
        callbacks=[looks],
        **settings_of(config),
        **job.fit_options(every=max(1, config.steps // 2)),
    )
    return looks


def _measured(
    config: TrainingConfig,
    task: Task,
    net: gilib.Network,
    likelihood: gilib.likelihoods.Likelihood,
    points: Points,
    samples: int,
) -> dict[str, float]:
    """Negative log-likelihood in original units, and accuracy or error in units of the targets' deviation."""
    prediction = predicted(net, likelihood, points.x, samples, 3000 + config.split)
    nll = task.log_scale - float(prediction.log_prob(points.y).mean())
    if task.classes:
        return {"nll": nll, "accuracy": float(gilib.metrics.accuracy(prediction.mean, points.y))}
    return {"nll": nll, "rmse": float(gilib.metrics.rmse(prediction.mean, points.y))}
