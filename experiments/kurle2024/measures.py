"""Measure a trained network, and compose its record."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.measuring import rounded, significant
from experiments.kurle2024 import tasks
from experiments.kurle2024.tasks import Task
from experiments.kurle2024.training import CurveRecorder, TrainingConfig, build, predicted, train
from experiments.runner.experiment import Job
from experiments.runner.records import Record
from gilib import metrics

FALSE_POSITIVES = (0.0, 0.01, 0.02, 0.05, *(k / 10 for k in range(1, 11)))  # where the ROC is recorded


def run(config: TrainingConfig, job: Job) -> Record:
    """Train and measure one configuration.

    Returns:
        A record. "metrics" are for the test points (validation points at the stage "search"), in nats per
        point and original units. "looks" has the lists "step", "seconds" (processor time of the steps), and
        `train_nll`, `look_nll`, `train_accuracy`, `look_accuracy` (or `..._rmse`) for at most 1000 points.
    """
    task = tasks.load(config.dataset, config.split, config.stage, config.images, job.device)
    net, likelihood = build(config, task)
    recorder = train(config, task, net, likelihood, job)
    return record(task, recorder, measure(config, task, net, likelihood))


def measure(
    config: TrainingConfig, task: Task, net: gilib.Network, likelihood: gilib.likelihoods.Likelihood
) -> dict[str, Any]:
    """Measure predictions at the test points, and at out-of-distribution images, if there are any."""
    samples = 1 if config.method == "map" else config.samples
    prediction = predicted(net, likelihood, task.test.x, samples, 4000 + config.split)
    log_likelihood = float(prediction.log_prob(task.test.y).mean()) - task.log_scale
    if not task.classes:
        rmse = float(metrics.rmse(prediction.mean, task.test.y)) * math.exp(task.log_scale)
        return {"log_likelihood": log_likelihood, "rmse": rmse}
    found = {"log_likelihood": log_likelihood} | classified(prediction.mean, task.test.y)
    if config.stage != "search" and config.dataset in tasks.OTHER:
        other = tasks.other_images(config.dataset, len(task.test), task.test.x.device)
        outside = predicted(net, likelihood, other, samples, 5000 + config.split).mean
        found |= {"out_of_distribution": told_apart(prediction.mean, outside)}
    return found


def classified(probabilities: Tensor, labels: Tensor) -> dict[str, Any]:
    """Measure accuracy, calibration and ranking of predictions `[N, O]`."""
    curve = metrics.calibration_curve(probabilities, labels)
    filled = curve.counts > 0
    ranked = [1] if probabilities.shape[-1] == 2 else range(probabilities.shape[-1])  # against all others
    areas = [metrics.auroc(probabilities[labels == k, k], probabilities[labels != k, k]) for k in ranked]
    return {
        "accuracy": float(metrics.accuracy(probabilities, labels)),
        "expected_calibration_error": float(curve.error),
        "calibration_noise": float(curve.noise_level),
        "auc": float(torch.stack(areas).mean()),
        "entropy": float(metrics.entropy(probabilities).mean()),
        "calibration": {
            "confidence": rounded(curve.confidence[filled], 4),
            "accuracy": rounded(curve.accuracy[filled], 4),
            "counts": curve.counts[filled].tolist(),
        },
    }


def told_apart(inside: Tensor, outside: Tensor) -> dict[str, Any]:
    """Measure how well entropy, and the top probability, detect points out of distribution."""
    scores = {
        "entropy": (metrics.entropy(outside), metrics.entropy(inside)),
        "top": (-outside.max(-1).values, -inside.max(-1).values),
    }
    rates = torch.tensor(FALSE_POSITIVES, dtype=torch.float64) * (1.0 + 1e-6)  # 0.3 of ten is three
    found: dict[str, Any] = {"false_positive_rates": list(FALSE_POSITIVES)}
    for name, (high, low) in scores.items():
        alarms = torch.cat([low.sort(descending=True).values, low.new_full((1,), -torch.inf)]).cpu()
        thresholds = alarms[(rates * len(low)).long().clamp(max=len(low))]  # so many known points are above
        found[f"auroc_{name}"] = significant(float(metrics.auroc(high, low)))
        found[f"roc_{name}"] = rounded((high.cpu() > thresholds[:, None]).double().mean(-1), 4)
    return found | {"mean_entropy": significant(float(scores["entropy"][0].mean()))}


def record(task: Task, recorder: CurveRecorder, found: dict[str, Any]) -> Record:
    """Return the body of a record, with numbers of six significant digits."""
    return {
        "data": {"name": task.name, "sha256": task.sha256},
        "metrics": {
            name: significant(value) if isinstance(value, float) else value
            for name, value in (found | {"train_seconds": recorder.seconds}).items()
        },
        "looks": recorder.curves,
    }
