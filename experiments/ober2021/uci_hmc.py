"""Hamiltonian Monte Carlo on the two smallest UCI sets, as a reference for all approximations.

All share one model: NealPrior, and a fixed noise variance, which global inducing learned on the same split.
So only the posterior differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common import uci_splits
from experiments.common.measuring import rounded, significant
from experiments.ober2021 import uci, uci_run
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record, RecordError, diverged, records_of
from gilib.baselines import Chains, HMCSettings, hmc
from gilib.metrics import log_mean_exp

PRIOR = "NealPrior"
STEPS = {"yacht": 0.07, "boston": 0.035}  # step sizes in units of the noise's deviation, found by trial
BOUND_DRAWS = 1000  # draws of one importance-weighted bound
REPEATS = 10  # of these bounds


@dataclass(frozen=True)
class FixedNoiseConfig(uci.UciConfig):
    """One training with a fixed noise variance.

    Attributes:
        noise_variance: noise variance, in squared units of the normalised targets.
        learned_steps: preceding gradient steps, in which the noise is learned as in the tables.
    """

    noise_variance: float = 0.1
    learned_steps: int = 0


@dataclass(frozen=True)
class ChainsConfig:
    """Chains for one split.

    Attributes:
        dataset: name of the set.
        split: number of the published split.
        noise_variance: fixed noise variance, in squared units of the normalised targets.
        burn_in: number of discarded states of each of four chains.
        samples: number of states after burn-in, thinned to 500.
        leapfrog_steps: steps per proposal.
        step_size: step size of the leapfrog integrator, in prior standard deviations.
        scale: scale of the experiment.
    """

    dataset: str
    split: int
    noise_variance: float
    burn_in: int
    samples: int
    leapfrog_steps: int
    step_size: float
    scale: str


def chains(scale: str) -> Iterator[ChainsConfig]:
    """Yield chains on the first split of each set."""
    length, leapfrog_steps = {"smoke": (20, 5), "reduced": (1000, 100), "paper": (5000, 100)}[scale]
    for base in _learned(scale):
        step = float(f"{STEPS[base.dataset] * base.noise_variance**0.5:.3g}")
        yield ChainsConfig(
            base.dataset, base.split, base.noise_variance, length, length, leapfrog_steps, step, scale
        )


def approximations(scale: str) -> Iterator[FixedNoiseConfig]:
    """Yield all four methods with the same noise, at their learning rates in the tables.

    Each is trained twice: from the initial values of the tables, and from their final values.
    """
    for base in _learned(scale):
        for record in _tables(scale, dataset=base.dataset, prior=PRIOR, split=base.split):
            settings = record["config"] | {"scale": scale, "noise_variance": base.noise_variance}
            for learned_steps in (0, record["config"]["steps"]):
                yield FixedNoiseConfig(**settings, learned_steps=learned_steps)


def _learned(scale: str) -> Iterator[FixedNoiseConfig]:
    """Yield global inducing's configuration on the first split of each set, with its learned noise."""
    for dataset in (name for name in STEPS if name in uci.SCALES[scale].sets):
        found = _tables(scale, dataset=dataset, method="gi", prior=PRIOR, split=0)
        if not found:
            raise RecordError(
                f"the noise of {dataset} is not learned yet: "
                f"first run `python -m experiments run uci --scale {scale}`"
            )
        noise = float(f"{found[-1]['metrics']['noise_variance']:.3g}")
        yield FixedNoiseConfig(**found[-1]["config"] | {"scale": scale}, noise_variance=noise)


def _tables(scale: str, **settings: Any) -> list[Record]:
    """Return the records of the tables at a scale with these settings."""
    return [
        record
        for record in records_of("uci", uci.UciConfig)
        if record["scale"] == scale
        and not diverged(record)
        and all(record["config"][key] == value for key, value in settings.items())
    ]


def sample(config: ChainsConfig, job: Job) -> Record:
    """Sample, and record predictions and convergence of the chains.

    Args:
        config: the configuration.
        job: checkpoint and deadline; JAX chooses the device of the chains.
    """
    data = uci_splits.load(config.dataset, [config.split], torch.device("cpu"), torch.float64)
    x, y = data.x[0], data.y[0]
    settings = HMCSettings(
        burn_in=config.burn_in,
        samples=config.samples,
        thin=max(1, config.samples // 500),
        leapfrog_steps=config.leapfrog_steps,
        step_size_burn_in=config.step_size,
        step_size=config.step_size,
        coordinates="scaled",
        seed=config.split,
    )
    widths, prior = (x.shape[1], 50, 50, 1), gilib.NealPrior()
    found = hmc(widths, x, y, config.noise_variance, prior, settings, **job.chain_options())
    return {"data": {"name": data.name, "sha256": data.sha256}, "metrics": _describe(found, data)}


def _describe(found: Chains, data: uci_splits.Data) -> dict[str, Any]:
    """Measure the chains' predictions of the test data, with diagnostics."""
    diagnostics = found.diagnostics(data.test_x[0])
    kept = ("draws", "r_hat_worst", "r_hat_log_joint", "effective_worst", "effective_log_joint")
    return {
        **predictions(found.draw()(data.test_x[0])[:, None], found.noise_variance, data),
        **{name: significant(diagnostics[name]) for name in kept},
        "acceptance": [significant(value) for value in found.acceptance.tolist()],
    }


def predictions(outputs: Tensor, noise_variance: float, data: uci_splits.Data) -> dict[str, Any]:
    """Return test log-likelihood and RMSE in original units; mean and deviation of the functions, normalised.

    Args:
        outputs: outputs of the drawn functions at the test inputs, `[S, 1, N*, 1]`.
        noise_variance: σ², normalised.
        data: data of one split.
    """
    log_prob = gilib.Gaussian(noise_variance).log_prob(outputs, data.test_y)
    test = gilib.metrics.test_log_likelihood(log_prob) - data.y_std.log()
    error = gilib.metrics.rmse(outputs.mean(0), data.test_y) * data.y_std
    return {
        "test_log_likelihood": significant(float(test)),
        "rmse": significant(float(error)),
        "mean": rounded(outputs.mean(0), 4),
        "function_sd": rounded(outputs.std(0, correction=0), 4),
    }


def train(configs: Sequence[FixedNoiseConfig], job: Job) -> list[Record]:
    """Train one approximation with fixed noise; record its bounds and its predictions."""
    config = configs[0]
    data = uci_splits.load(config.dataset, [config.split], job.device)
    net, learned = uci_run.build(configs, data, [config.split])
    if config.learned_steps:
        before = replace(config, steps=config.learned_steps)
        kept = job.checkpoint and job.checkpoint.with_name(f"learned-{job.checkpoint.name}")
        first = replace(job, checkpoint=kept)
        uci_run.train(before, net, learned, data, [config.lr], [config.split], first)
    likelihood = gilib.Gaussian(config.noise_variance, replicas=(1,)).to(job.device)
    history = uci_run.train(config, net, likelihood, data, [config.lr], [config.split], job)
    results = uci_splits.measure(uci_splits.drawn(net, config.test_samples, [config.split]), likelihood, data)
    (record,) = uci_splits.records(data, history, results)
    if record["metrics"]:
        record["metrics"] |= _bounds(net, likelihood, data)
        outputs = uci_splits.drawn(net, BOUND_DRAWS, [config.split])(data.test_x).detach()
        record["metrics"] |= predictions(outputs.cpu(), config.noise_variance, _on_cpu(data))
    return [record]


@torch.no_grad()
def _bounds(net: gilib.Network, likelihood: gilib.Gaussian, data: uci_splits.Data) -> dict[str, float]:
    """Return the importance-weighted bound of many draws per point, with its error over repetitions."""
    values = []
    for repeat in range(REPEATS):
        draw = uci_splits.drawn(net, BOUND_DRAWS, [100 * (repeat + 1)])
        log_weights = likelihood.log_prob(draw(data.x), data.y).sum(-1) + draw.density
        values.append(log_mean_exp(log_weights, 0) / data.x.shape[1])
    bounds = torch.stack(values)
    error = bounds.std() / REPEATS**0.5
    return {"iwbo": significant(float(bounds.mean())), "iwbo_stderr": significant(float(error))}


def _on_cpu(data: uci_splits.Data) -> uci_splits.Data:
    return replace(data, test_y=data.test_y.cpu(), y_std=data.y_std.cpu())


EXPERIMENTS = {
    "uci_hmc": Experiment(
        "Hamiltonian Monte Carlo on the two smallest UCI sets",
        ChainsConfig,
        chains,
        one_by_one(sample),
        check=uci_splits.check,
    ),
    "uci_fixed_noise": Experiment(
        "The four methods with the noise of these chains",
        FixedNoiseConfig,
        approximations,
        train,
        check=uci_splits.check,
    ),
}
