"""Jobs on the processor without a checkpoint, and records of configurations that nobody has run."""

import dataclasses

import torch

from experiments.runner.experiment import Job
from experiments.runner.identity import identity
from experiments.runner.writing import append

CPU = torch.device("cpu")
JOB = Job(CPU, None)


def recorded(name, config, **metrics):
    """Record what a configuration measured; if that is nothing, it diverged."""
    settings = dataclasses.asdict(config)
    head = {"id": identity(name, config), "experiment": name, "scale": settings.pop("scale")}
    body = {"metrics": metrics} if metrics else {"metrics": {}, "diverged_at": 3}
    append(name, [head | {"config": settings} | body])
