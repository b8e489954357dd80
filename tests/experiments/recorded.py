"""Jobs without a checkpoint, records of configurations that nobody has run, and chains that nobody has."""

import dataclasses
import inspect
import itertools

import torch

import gilib
from experiments import load_records
from experiments.runner.experiment import Job
from experiments.runner.identity import identity
from experiments.runner.writing import append
from gilib.baselines import Chains, hmc
from tests.support import D, seeded

CPU = torch.device("cpu")
JOB = Job(CPU, None)


def recorded(name, config, **metrics):
    """Record what a configuration measured; if that is nothing, it diverged."""
    settings = dataclasses.asdict(config)
    head = {"id": identity(name, config), "experiment": name, "scale": settings.pop("scale")}
    body = {"metrics": metrics} if metrics else {"metrics": {}, "diverged_at": 3}
    append(name, [head | {"config": settings} | body])


def measured(name):
    return {str(record["config"]): record["metrics"] for record in load_records(name)}


def drawn_from_the_prior(widths, x, y, noise_variance, prior, settings, **options):
    """What `hmc` returns, but for its states: tests/baselines sample."""
    inspect.signature(hmc).bind(widths, x, y, noise_variance, prior, settings, **options)
    assert prior == gilib.NealPrior() and len(x) == len(y) and widths[0] == x.shape[1]
    kept, generator = (settings.chains, settings.kept), seeded()
    layers = [(inputs + 1, outputs) for inputs, outputs in itertools.pairwise(widths)]
    weights = [torch.randn(*kept, *shape, generator=generator).to(x) / shape[0] ** 0.5 for shape in layers]
    accepted = torch.full(kept[:1], 0.9, dtype=D)
    log_joint = torch.randn(kept, generator=generator, dtype=D)
    return Chains(tuple(weights), log_joint, accepted, accepted, noise_variance, 1.0, settings)
