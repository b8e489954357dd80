"""Train structured deep Gaussian processes, and the methods that they are compared with, on UCI sets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor

import gilib
from experiments.common.uci_splits import check
from experiments.lindinger2020 import measures, networks, tasks, uci
from experiments.lindinger2020.stopping import HoldOut
from experiments.lindinger2020.tasks import Task
from experiments.lindinger2020.uci import StructuredConfig
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.training import Callback

Measured = tuple[dict[str, Any], dict[str, Tensor], gilib.training.History]
NO_HOLD_OUT = ("sgp", "sghmc")  # methods that train on all points, App. G


def run(config: StructuredConfig, job: Job) -> Record:
    """Train on one repetition of a task and measure.

    Returns:
        A record: the ELBO on the training points (nats on normalised targets, per point with its standard
        error over draws, and in total; for a chain the number of states instead); log-likelihood per point
        and RMSE on the test data, in original units; the noise variance, and, if there is some, the variance
        of white noise in each hidden layer; the number of steps, whether they ended early, and their seconds
        (extrapolated, if the training was resumed). "test_points" has, for at most 400 points that all
        methods share, the log-likelihood, predictive variance, squared error, and the distance to the nearest
        training input in normalised units. Thinned training curve.
    """
    held_out = 0.0 if config.method in NO_HOLD_OUT else config.held_out
    task = tasks.load(config.dataset, config.task, config.repetition, held_out, job.device)
    net, likelihood = networks.build(config, task)
    measured = _chain if config.method == "sghmc" else _posterior
    metrics, found, history = measured(config, net, likelihood, task, job)
    noise: dict[str, Any] = {"noise_variance": float(likelihood.noise_variance.detach())}
    if config.white:
        noise["white"] = networks.white_of(net)
    body = measures.body(task, metrics | measures.test_metrics(found) | noise, history)
    return body | {"test_points": measures.shown(found, task)}


def _posterior(
    config: StructuredConfig, net: gilib.Network, likelihood: gilib.Gaussian, task: Task, job: Job
) -> Measured:
    """Train a variational posterior; return bound and time, predictions, and history."""
    history, trained = train(config, net, likelihood, task, job, hold_out(config, likelihood, task))
    metrics = measures.bound(net, likelihood, task, config.elbo_samples, 2000 + config.repetition)
    at = measures.estimates(net, config.test_samples, 4000 + config.repetition)
    return metrics | trained, measures.predictions(at, config.test_samples, likelihood, task), history


def _chain(
    config: StructuredConfig, net: gilib.Network, likelihood: gilib.Gaussian, task: Task, job: Job
) -> Measured:
    """Run a chain; return its time, predictions with its states, and history."""
    states = networks.stored_states(config)
    history, trained = train(config, net, likelihood, task, job, [states])
    chain = states.samples(net)
    at = measures.states(chain, 4000 + config.repetition)
    metrics = trained | {"points": len(task.x), "states": chain.num_states}
    return metrics, measures.predictions(at, chain.num_states, likelihood, task), history


def hold_out(config: StructuredConfig, likelihood: gilib.Gaussian, task: Task) -> list[Callback]:
    """Return the callback for early stopping, if points are held out."""
    if not len(task.held_x):
        return []
    settings = {"start": config.stop_after, "num_samples": config.num_samples, "seed": config.repetition}
    return [HoldOut(likelihood, task.held_x, task.held_y, **settings)]


def train(
    config: StructuredConfig,
    net: gilib.Network,
    likelihood: gilib.Gaussian,
    task: Task,
    job: Job,
    callbacks: Sequence[Callback] = (),
) -> tuple[gilib.training.History, dict[str, Any]]:
    """Train; return the history, the number of steps and their seconds."""
    begin = time.perf_counter()
    history = gilib.fit(
        net,
        likelihood,
        task.x,
        task.y,
        steps=config.steps,
        batch_size=config.batch_size,
        num_samples=config.num_samples,
        rule=networks.rule(config),
        seed=config.repetition,
        callbacks=callbacks,
        **job.fit_options(),
    )
    seconds, steps = time.perf_counter() - begin, len(history.elbo)
    return history, {
        "steps": steps,
        "stopped_early": steps < config.steps,
        "train_seconds": seconds / max(1, steps - history.resumed_at) * steps,
    }


EXPERIMENTS = {
    "structured_uci": Experiment(
        "Tables 1, 2, S3-S5: structured deep GPs between inter- and extrapolation on eight UCI sets",
        StructuredConfig,
        uci.tables,
        one_by_one(run),
        check=check,
    ),
    "structured_search": Experiment(
        "The learning rate of structured deep GPs below paper scale, by the ELBO",
        StructuredConfig,
        uci.search,
        one_by_one(run),
        check=check,
        scales=tuple(uci.SEARCHED_SETS),
    ),
    "structured_details": Experiment(
        "What white noise and early stopping change in short trainings of structured deep GPs",
        StructuredConfig,
        uci.details,
        one_by_one(run),
        check=check,
        scales=tuple(uci.SEARCHED_SETS),
    ),
}
