"""A tiny experiment: replicas of a one-layer network that train together, in a fraction of a second."""

import dataclasses
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import gilib
from experiments.runner.experiment import Experiment, Job
from gilib.data import DataError

STEPS = {"smoke": 20, "reduced": 60, "paper": 120}


@dataclass(frozen=True)
class TinyConfig:
    task: str
    seed: int
    lr: float = 0.01
    scale: str = "smoke"


def configurations(scale):
    for seed in (0, 1):
        for task in ("sine", "cube", "line"):
            yield TinyConfig(task, seed, scale=scale)


def run(configs, job):
    """Train the seeds of a task as replicas, with a checkpoint every five steps."""
    x = torch.linspace(-1.0, 1.0, 8)[:, None]
    y = {"sine": torch.sin(3.0 * x), "cube": x**3, "line": x}[configs[0].task]
    shared = {"inducing_points": x[:4], "generator": torch.Generator().manual_seed(7)}
    net = gilib.models.mlp(1, (3,), 1, replicas=(len(configs),), **shared)
    settings = {"steps": STEPS[configs[0].scale], "num_samples": 2, **job.fit_options(every=5)}
    seeds = [config.seed for config in configs]
    history = gilib.fit(net, gilib.Gaussian(0.1), x, y, seed=seeds, **settings)
    weights = [parameter.detach().sum().item() for parameter in net.parameters()]
    curves = history.elbo.T.tolist()
    about = {"name": configs[0].task, "resumed_at": history.resumed_at}
    metrics = ({"elbo": curve[-1], "weights": weights} for curve in curves)
    return [{"data": about, "metrics": own, "curve": c} for own, c in zip(metrics, curves, strict=True)]


def run_and_lose_a_process(configs, job):
    """The same, but the first process to begin with "cube" is killed once a checkpoint is there."""
    mark = Path(os.environ["TINY_MARK"])
    if configs[0].task == "cube" and not mark.exists():
        mark.touch()
        try:
            run(configs, Job(job.device, job.checkpoint, time.monotonic()))
        except gilib.training.Paused:
            os.kill(os.getpid(), signal.SIGKILL)
    return run(configs, job)


def stay(configs, job):
    """Leave the number of the process in a folder, and do not come back."""
    (Path(os.environ["TINY_MARK"]) / str(os.getpid())).touch()
    time.sleep(600.0)
    raise AssertionError("nobody stopped this process")


def stay_or_fail(configs, job):
    """The same, but "sine" fails as soon as another process stays."""
    while configs[0].task == "sine":
        if os.listdir(os.environ["TINY_MARK"]):
            raise DataError("no data for sine")
        time.sleep(0.01)
    return stay(configs, job)


def task(config):
    """What the members of a group share."""
    return config.task


TINY = Experiment("replicas of a tiny network", TinyConfig, configurations, run, task)
UNLUCKY = dataclasses.replace(TINY, run=run_and_lose_a_process)
