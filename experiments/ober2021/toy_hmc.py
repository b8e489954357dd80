"""Hamiltonian Monte Carlo on the toy problem, as a reference (Ober & Aitchison, 2021, App. O)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from experiments.examples import toy
from experiments.ober2021.toy import GRID, PRIOR_SCALES
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.baselines import HMCSettings, hmc
from gilib.priors import NealPrior


@dataclass(frozen=True)
class HMCConfig:
    """One set of chains on the toy problem.

    Attributes:
        seed: seed of the data and of the chains.
        normalise: whether inputs and targets are normalised.
        tuned: use longer trajectories in scaled coordinates instead of the paper's settings.
        burn_in: number of discarded states of each of four chains.
        samples: number of states after burn-in, thinned by ten.
        prior_scale: s of NealPrior; steps are divided by s², which keeps acceptance near 0.8.
        scale: scale of the experiment.
    """

    seed: int = 0
    normalise: bool = True
    tuned: bool = False
    burn_in: int = 10_000
    samples: int = 10_000
    prior_scale: float = 1.0
    scale: str = "paper"


def configurations(scale: str) -> Iterator[HMCConfig]:
    """Yield the paper's and the tuned settings on the first data draw, and tuned ones on the others."""
    seeds, length = {"smoke": (1, 100), "reduced": (1, 2_000), "paper": (3, 10_000)}[scale]
    yield HMCConfig(burn_in=length, samples=length, scale=scale)
    for seed in range(seeds):
        yield HMCConfig(seed, tuned=True, burn_in=length, samples=length, scale=scale)


def wider_priors(scale: str) -> Iterator[HMCConfig]:
    """Yield tuned chains under NealPrior times √2."""
    seeds, length = {"smoke": (1, 100), "reduced": (1, 2_000), "paper": (3, 10_000)}[scale]
    for seed in range(seeds):
        yield HMCConfig(seed, True, True, min(length, 2_000), length, PRIOR_SCALES[1], scale)


def run(config: HMCConfig, job: Job) -> Record:
    """Sample, and record the predictive distribution on the grid with R-hat and effective sample sizes.

    Args:
        config: the configuration.
        job: checkpoint and deadline; JAX chooses the device of the chains.
    """
    problem = toy(config.seed, normalise=config.normalise)
    base = HMCSettings.tuned() if config.tuned else HMCSettings()
    steps = {name: getattr(base, name) / config.prior_scale**2 for name in ("step_size_burn_in", "step_size")}
    settings = replace(base, burn_in=config.burn_in, samples=config.samples, seed=config.seed, **steps)
    variance = problem.noise_variance
    options = job.chain_options()
    chains = hmc(
        (1, 50, 50, 1), problem.x, problem.y, variance, NealPrior(config.prior_scale), settings, **options
    )
    grid = GRID if config.normalise else GRID * problem.x.std()
    return {"data": {"name": "toy", "sha256": problem.sha256}, "metrics": chains.summary(grid, states=200)}


EXPERIMENTS = {
    "toy_hmc": Experiment(
        "Hamiltonian Monte Carlo on the toy problem", HMCConfig, configurations, one_by_one(run)
    ),
    "toy_prior_hmc": Experiment(
        "Hamiltonian Monte Carlo on the toy problem under wider priors",
        HMCConfig,
        wider_priors,
        one_by_one(run),
    ),
}
