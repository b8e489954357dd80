"""Compare integrating out inducing outputs with sampling them: Lindinger et al. (2020), Fig. 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from experiments.lindinger2020 import measures, networks, tasks, uci_run
from experiments.lindinger2020.uci import StructuredConfig
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record

SCALES = {  # seeds, steps, M, start of the hidden layers
    "smoke": (1, 3, 6, 0.1),
    "reduced": (3, 150, 128, 0.1),
    "paper": (3, 0, 128, 1e-5),
}
STEPS = {True: 750, False: 1500}  # steps in the authors' code
KEPT = 150  # recorded points of a training curve


@dataclass(frozen=True)
class ConvergenceConfig:
    """One training of the fully coupled deep GP on all training points at every step.

    Attributes:
        marginalise: whether inducing outputs are integrated out rather than sampled once for every draw.
        seed: seed of split, initial values and draws.
        dataset: name of the set.
        depth: number of layers.
        num_inducing: M.
        width: width of hidden layers.
        steps: gradient steps.
        num_samples: draws per step.
        lr: Adam's rate, which is constant.
        hidden_scale: see `StructuredConfig`.
        scale: key of `SCALES`.
    """

    marginalise: bool
    seed: int
    dataset: str = "concrete"
    depth: int = 3
    num_inducing: int = 128
    width: int = 5
    steps: int = 750
    num_samples: int = 5
    lr: float = 5e-3
    hidden_scale: float = 1e-5
    scale: str = "paper"


def grid(scale: str) -> Iterator[ConvergenceConfig]:
    """Yield both estimators, seed by seed."""
    seeds, steps, inducing, start = SCALES[scale]
    for seed in range(seeds):
        for marginalise, usual in STEPS.items():
            yield ConvergenceConfig(
                marginalise,
                seed,
                num_inducing=inducing,
                steps=steps or usual,
                hidden_scale=start,
                scale=scale,
            )


def run(config: ConvergenceConfig, job: Job) -> Record:
    """Train and record the bound over the steps.

    Returns:
        A record: "curve" has the training's estimates of the bound per point at every k-th step; k
        (`curve_every`), seconds per step (`step_seconds`), the final ELBO, and the standard deviation of its
        estimate from a single draw (`estimate_sd`), per point.
    """
    task = tasks.load(config.dataset, "interpolation", config.seed, 0.0, job.device)
    training = _training(config, len(task.x))
    net, likelihood = networks.structured(training, task, config.marginalise)
    net, likelihood = net.to(job.device), likelihood.to(job.device)
    history, trained = uci_run.train(training, net, likelihood, task, job)
    metrics = measures.bound(net, likelihood, task, training.elbo_samples, 2000 + config.seed)
    every = max(1, config.steps // KEPT)
    metrics |= {
        "estimate_sd": metrics["elbo_stderr"] * math.sqrt(training.elbo_samples),
        "noise_variance": float(likelihood.noise_variance.detach()),
        "step_seconds": trained["train_seconds"] / config.steps,
        "curve_every": every,
    }
    return measures.body(task, metrics, history, KEPT)


def _training(config: ConvergenceConfig, points: int) -> StructuredConfig:
    return StructuredConfig(
        config.dataset,
        "interpolation",
        config.seed,
        "fc",
        config.depth,
        num_inducing=config.num_inducing,
        width=config.width,
        steps=config.steps,
        batch_size=points,
        num_samples=config.num_samples,
        lr=config.lr,
        decay_every=config.steps,
        hidden_scale=config.hidden_scale,
        scale=config.scale,
    )


EXPERIMENTS = {
    "structured_convergence": Experiment(
        "Fig. 2: inducing outputs integrated out, or sampled",
        ConvergenceConfig,
        grid,
        one_by_one(run),
    ),
}
