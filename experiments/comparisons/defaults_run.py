"""Train and measure one variant of the recipe."""

from __future__ import annotations

import math
import time

import torch

import gilib
from experiments.common.measuring import significant
from experiments.common.uci_splits import CURVE
from experiments.comparisons import defaults, tasks
from experiments.comparisons.defaults import VARIANTS, DefaultsConfig
from experiments.comparisons.tasks import Task, broken, measured, task
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.linalg import FactorisationError
from gilib.recipes import Trained
from gilib.training import DivergenceError

AT_ONCE = 1000  # points


def run(config: DefaultsConfig, job: Job) -> Record:
    """Train a variant on a split and measure it.

    Returns:
        A record: `elbo`, nats per training point on normalised targets; `converged`; the metrics of
        `tasks.measured` on the test data; processor seconds of the training; thinned training curve.
    """
    own = task(config.dataset, config.split)
    recipe = VARIANTS[config.variant].recipe(config.steps)
    begin = time.process_time()
    try:
        trained = recipe.train(own.x, own.y, classes=own.classes, seed=config.split, **job.fit_options())
        elbo = trained.history.elbo
        whole = len(elbo) / max(1, len(elbo) - trained.history.resumed_at)
        metrics = {"process_seconds": (time.process_time() - begin) * whole}
        metrics |= _measured(config, own, trained)
    except (DivergenceError, FactorisationError) as error:
        return broken(own, recipe.steps, error)
    if not all(math.isfinite(value) for value in metrics.values()):
        return broken(own, recipe.steps, "predictions are not finite")
    return {
        "data": own.data,
        "metrics": {name: significant(value) for name, value in metrics.items()},
        "curve": [significant(value) for value in elbo[:: max(1, len(elbo) // CURVE)].tolist()],
    }


def _measured(config: DefaultsConfig, own: Task, trained: Trained) -> dict[str, float]:
    """Measure the bound and predictions of the test data."""
    net, likelihood, history = trained
    source = torch.Generator().manual_seed(2000 + config.split)
    elbo = gilib.recipes.bound(
        net, likelihood, own.x, own.y, num_samples=config.test_samples, generator=source
    )
    found = gilib.predict(
        net, likelihood, own.test_x, config.test_samples, batch_size=AT_ONCE, generator=source
    )
    return {"elbo": float(elbo), "converged": float(history.converged), **measured(found, own)}


EXPERIMENTS = {
    "defaults": Experiment(
        "The recommended recipe with one setting changed",
        DefaultsConfig,
        defaults.grid,
        one_by_one(run),
        check=tasks.check,
        scales=tuple(defaults.SCALES),
    )
}
