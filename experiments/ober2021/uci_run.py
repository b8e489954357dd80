"""Train on UCI sets, with replicas for splits, learning rates and priors."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.methods import PRIORS, Posteriors, ends_global, posterior_of
from experiments.common.uci_splits import Data, check, drawn, load, measure, records
from experiments.ober2021 import uci
from experiments.ober2021.uci import UciConfig
from experiments.runner.experiment import Experiment, Job, Training
from experiments.runner.records import Record
from gilib.priors import PerReplica, Prior
from gilib.randomness import ReplicaGenerators

LOG_NOISE_VARIANCE = -3.0  # App. K.1; the stored parameter has a scale of 10
NOISE_SCALE = 10.0


def run(configs: Sequence[UciConfig], job: Job) -> list[Record]:
    """Train configurations of one set and method together and measure them.

    Returns:
        One record for each: the ELBO per training point (with its standard error over draws) and the
        importance-weighted bound of the same draws, in nats on normalised targets; log-likelihood and RMSE on
        the test data, in original units; noise variance; thinned training curve.
    """
    return _records(configs, job, measured=True)


def search(configs: Sequence[UciConfig], job: Job) -> list[Record]:
    """Train together, and record the mean of the last tenth of each training curve, without test data."""
    return _records(configs, job, measured=False)


def _records(configs: Sequence[UciConfig], job: Job, measured: bool) -> list[Record]:
    data = load(configs[0].dataset, [config.split for config in configs], job.device)
    own = training(configs, data)
    net, likelihood = own.start()
    history = gilib.fit(net, likelihood, own.x, own.y, **own.settings, **job.fit_options())
    if measured:
        results = own.measure(net, likelihood)
    else:
        results = {"elbo": last_bounds(history)}
    return records(data, history, results)


def last_bounds(history: gilib.training.History) -> Tensor:
    """Return the mean of the last tenth of each training curve, `[R]`."""
    return history.elbo[-math.ceil(len(history.elbo) / 10) :].mean(0)


def training(configs: Sequence[UciConfig], data: Data) -> Training:
    """Return the training, with a replica for each configuration."""
    seeds = [config.split for config in configs]

    def measured(net: gilib.Network, likelihood: gilib.Gaussian) -> dict[str, Tensor]:
        return measure(drawn(net, configs[0].test_samples, seeds), likelihood, data)

    start = functools.partial(build, configs, data, seeds)
    fitting = settings(configs[0], [config.lr for config in configs], seeds)
    return Training(start, data.x, data.y, fitting, measured, data.test_x, data.test_y)


def alone(config: UciConfig, device: torch.device) -> Training:
    """Return the training of one configuration."""
    return training([config], load(config.dataset, [config.split], device))


def build(
    configs: Sequence[UciConfig],
    data: Data,
    seeds: Sequence[int],
    posterior: Posteriors | None = None,
    prior: Prior | None = None,
    **changed: Any,
) -> tuple[gilib.Network, gilib.Gaussian]:
    """Build one network with a replica for each configuration, initialised on the CPU as in App. O.

    By default the configurations' method and priors determine posterior and prior.
    """
    config, replicas = configs[0], (len(configs),)
    inducing = min(config.num_inducing, data.x.shape[1])
    is_global = ends_global(config.method)
    make = functools.partial(
        gilib.models.mlp,
        data.x.shape[-1],
        (50, 50),
        1,
        posterior=posterior or uci_posterior(config.method, inducing),
        prior=prior or prior_of(configs),
        inducing_points=data.x[:, :inducing].cpu() if is_global else None,
        pseudo_outputs=data.y[:, :inducing].cpu() if is_global else None,
        replicas=replicas,
        generator=ReplicaGenerators([1000 + seed for seed in seeds]),
        dtype=data.x.dtype,
    )
    noise = gilib.Gaussian(math.exp(LOG_NOISE_VARIANCE), learn=True, scale=NOISE_SCALE, replicas=replicas)
    return make(**changed).to(data.x.device), noise.to(data.x.device)


def prior_of(configs: Sequence[UciConfig]) -> Prior:
    """Return the prior that all replicas share, or one for each replica."""
    priors = [PRIORS[config.prior] for config in configs]
    return priors[0] if len(set(priors)) == 1 else PerReplica(tuple(priors))


def uci_posterior(method: str, inducing: int) -> Posteriors:
    """Return the posterior of a method, with one diagonal precision for each output channel."""
    last = functools.partial(gilib.GlobalInducing, precision="per_output")
    local = functools.partial(gilib.LocalInducing, num_inducing=inducing, precision="per_output")
    return posterior_of(method, last, local)


def train(
    config: UciConfig,
    net: gilib.Network,
    likelihood: gilib.Gaussian,
    data: Data,
    rates: Sequence[float],
    seeds: Sequence[int],
    job: Job,
) -> gilib.training.History:
    """Train all replicas; diverged ones are frozen."""
    own = settings(config, rates, seeds)
    return gilib.fit(net, likelihood, data.x, data.y, **own, **job.fit_options())


def settings(config: UciConfig, rates: Sequence[float], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the arguments of `gilib.fit` for the training."""
    return {
        "steps": config.steps,
        "batch_size": config.batch_size,
        "num_samples": config.num_samples,
        "rule": gilib.Adam(list(rates)),
        "seed": list(seeds),
        "estimator": "pointwise" if config.method == "fac" else "draw",
        "on_divergence": "freeze",
    }


EXPERIMENTS = {
    "uci_search": Experiment(
        "Tables 5-7: the search for learning rates and batch sizes",
        uci.SearchConfig,
        uci.search,
        search,
        group=uci.group_key,
        check=check,
        largest_group=64,
    ),
    "uci": Experiment(
        "Tables 5-7: four methods and three priors on nine UCI sets",
        UciConfig,
        uci.tables,
        run,
        group=uci.group_key,
        check=check,
        largest_group=64,
        scales=tuple(uci.SCALES),
        build=alone,
    ),
}
