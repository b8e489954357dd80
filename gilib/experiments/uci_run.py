"""Training and measuring on the UCI sets: replicas are splits, learning rates and priors."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import gilib
from gilib.data import Dataset, Split, load_uci
from gilib.experiments.experiment import Job
from gilib.experiments.records import Record, significant
from gilib.experiments.uci import UciConfig
from gilib.linalg import failures_as_nan
from gilib.metrics import log_mean_exp
from gilib.priors import PerReplica, Prior
from gilib.randomness import ReplicaGenerators

LOG_NOISE_VARIANCE = -3.0  # App. K.1, with a scale of 10 for the stored parameter
NOISE_SCALE = 10.0
EVALUATED_AT_ONCE = 2**21  # draws × replicas × points: bounds the memory of a hidden layer
CURVE = 40  # points that are kept of a training curve

PRIORS: dict[str, Prior] = {
    "StandardPrior": gilib.StandardPrior(),
    "NealPrior": gilib.NealPrior(),
    "ScalePrior": gilib.ScalePrior(),
}


@dataclass(frozen=True)
class Data:
    """Several splits of one set along the replica axis, normalised.

    Attributes:
        name: of the set.
        sha256: of its arrays.
        x: `[R, N, D]`; `y` `[R, N, 1]`; `test_x` `[R, N*, D]`; `test_y` `[R, N*, 1]`.
        y_std: standard deviation of the targets, `[R]`, original units.
    """

    name: str
    sha256: str
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    y_std: Tensor


@functools.lru_cache(1)
def _dataset(name: str) -> Dataset:
    return load_uci(name)


def load(name: str, splits: Sequence[int], device: torch.device, dtype: torch.dtype = torch.float32) -> Data:
    """The given splits of a set; a split may occur several times."""
    dataset = _dataset(name)
    distinct: dict[int, Split] = {k: dataset.split(k, dtype, device) for k in dict.fromkeys(splits)}
    chosen = [distinct[k] for k in splits]
    return Data(
        name=name,
        sha256=dataset.sha256,
        x=torch.stack([split.train_x for split in chosen]),
        y=torch.stack([split.train_y for split in chosen]),
        test_x=torch.stack([split.test_x for split in chosen]),
        test_y=torch.stack([split.test_y for split in chosen]),
        y_std=torch.stack([split.normalisation.y_std[0] for split in chosen]).to(device, dtype),
    )


def run(configs: Sequence[UciConfig], job: Job) -> list[Record]:
    """Train configurations of one set and method together and measure them.

    Returns:
        One record for each: on the training data, the ELBO per point (with its standard error over the draws)
        and the importance-weighted bound of the same draws, both nats on normalised targets; on the test data
        log-likelihood and RMSE, in the original units; noise variance; thinned training curve.
    """
    return _records(configs, job, measured=True)


def search(configs: Sequence[UciConfig], job: Job) -> list[Record]:
    """Train together; record the mean of the last tenth of each training curve and no test data."""
    return _records(configs, job, measured=False)


def _records(configs: Sequence[UciConfig], job: Job, measured: bool) -> list[Record]:
    data = load(configs[0].dataset, [config.split for config in configs], job.device)
    seeds = [config.split for config in configs]
    net, likelihood = build(configs, data, seeds)
    history = train(configs[0], net, likelihood, data, [c.lr for c in configs], seeds, job)
    if measured:
        results = measure(drawn(net, configs[0].test_samples, seeds), likelihood, data)
    else:
        results = {"elbo": last_bounds(history)}
    return records(data, history, results)


def last_bounds(history: gilib.History) -> Tensor:
    """The mean of the last tenth of each training curve, `[R]`."""
    return history.elbo[-math.ceil(len(history.elbo) / 10) :].mean(0)


def build(
    configs: Sequence[UciConfig],
    data: Data,
    seeds: Sequence[int],
    posterior: gilib.Posterior | tuple[gilib.Posterior, gilib.Posterior] | None = None,
    prior: Prior | None = None,
) -> tuple[gilib.Network, gilib.Gaussian]:
    """One network with a replica for each configuration, initialised on the CPU as App. O has it.

    Posterior and prior are those of the configurations' method and priors unless others are given.
    """
    config, replicas = configs[0], (len(configs),)
    inducing = min(config.num_inducing, data.x.shape[1])
    is_global = config.method in ("gi", "fac_gi")
    net = gilib.models.mlp(
        data.x.shape[-1],
        (50, 50),
        1,
        posterior=posterior or posterior_of(config.method, inducing),
        prior=prior or prior_of(configs),
        inducing_points=data.x[:, :inducing].cpu() if is_global else None,
        pseudo_outputs=data.y[:, :inducing].cpu() if is_global else None,
        replicas=replicas,
        generator=ReplicaGenerators([1000 + seed for seed in seeds]),
        dtype=data.x.dtype,
    ).to(data.x.device)
    noise = gilib.Gaussian(math.exp(LOG_NOISE_VARIANCE), learn=True, scale=NOISE_SCALE, replicas=replicas)
    return net, noise.to(data.x.device)


def prior_of(configs: Sequence[UciConfig]) -> Prior:
    """The prior of all replicas, or one for each."""
    priors = [PRIORS[config.prior] for config in configs]
    return priors[0] if len(set(priors)) == 1 else PerReplica(tuple(priors))


def posterior_of(method: str, inducing: int) -> gilib.Posterior | tuple[gilib.Posterior, gilib.Posterior]:
    """The posterior of a method, with one diagonal precision for each output channel."""
    last = gilib.GlobalInducing(precision="per_output")
    if method == "li":
        return gilib.LocalInducing(num_inducing=inducing, precision="per_output")
    if method == "fac":
        return gilib.Factorised()
    return last if method == "gi" else (gilib.Factorised(), last)


def train(
    config: UciConfig,
    net: gilib.Network,
    likelihood: gilib.Gaussian,
    data: Data,
    rates: Sequence[float],
    seeds: Sequence[int],
    job: Job,
) -> gilib.History:
    """Train all replicas; those that diverge are frozen."""
    estimator = "local_reparameterisation" if config.method == "fac" else "draw"
    return gilib.fit(
        net,
        likelihood,
        data.x,
        data.y,
        steps=config.steps,
        batch_size=config.batch_size,
        num_samples=config.num_samples,
        rule=gilib.Adam(list(rates)),
        seed=list(seeds),
        estimator=estimator,
        on_divergence="freeze",
        **job.fit_options(estimator),
    )


@torch.no_grad()
def drawn(net: gilib.Network, samples: int, seeds: Sequence[int]) -> gilib.Draw:
    """Functions to measure with; NaN where a replica's factorisation fails."""
    like = next(net.parameters())
    with failures_as_nan():
        return net.draw(samples, generator=ReplicaGenerators([2000 + seed for seed in seeds], like.device))


@torch.no_grad()
def measure(
    draw: gilib.Draw | gilib.LocalReparameterisation, likelihood: gilib.Gaussian, data: Data
) -> dict[str, Tensor]:
    """What is recorded of trained networks, each `[R]`; the bound `iwbo` of whole functions only."""
    train_log_prob, _ = _evaluate(draw, likelihood, data.x, data.y)
    bounds = train_log_prob.sum(-1).double() + draw.log_pq.double()  # [S, R]
    points = data.x.shape[1]
    test_log_prob, mean = _evaluate(draw, likelihood, data.test_x, data.test_y)
    measured = {
        "elbo": bounds.mean(0) / points,
        "elbo_stderr": bounds.std(0) / math.sqrt(len(bounds)) / points,
        "iwbo": log_mean_exp(bounds, 0) / points,
        "test_log_likelihood": gilib.metrics.test_log_likelihood(test_log_prob) - data.y_std.log(),
        "rmse": gilib.metrics.rmse(mean, data.test_y) * data.y_std,
        "noise_variance": likelihood.noise_variance,
    }
    if not isinstance(draw, gilib.Draw):
        del measured["iwbo"]
    return measured


def _evaluate(
    draw: gilib.Draw | gilib.LocalReparameterisation, likelihood: gilib.Gaussian, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-likelihoods `[S, R, N]` and mean prediction `[R, N, 1]`, a batch of points at a time."""
    size = max(1, EVALUATED_AT_ONCE // draw.log_pq.numel())
    log_probs, means = [], []
    for inputs, targets in zip(x.split(size, 1), y.split(size, 1), strict=True):
        outputs = draw(inputs)
        log_probs.append(likelihood.log_prob(outputs, targets))
        means.append(outputs.mean(0))
    return torch.cat(log_probs, -1), torch.cat(means, -2)


def records(data: Data, history: gilib.History, results: dict[str, Tensor]) -> list[Record]:
    """One record for each replica: results `[R]` by name, and the thinned training curve."""
    assert history.diverged_at is not None
    return [_record(data, history, results, r, int(at)) for r, at in enumerate(history.diverged_at)]


def _record(
    data: Data, history: gilib.History, results: dict[str, Tensor], replica: int, diverged_at: int
) -> Record:
    steps = len(history.elbo)
    curve = history.elbo[:, replica]
    if diverged_at >= 0:
        curve = curve[:diverged_at]
    record: Record = {
        "data": {"name": data.name, "sha256": data.sha256},
        "metrics": {name: significant(float(value[replica])) for name, value in results.items()},
        "curve": [significant(value) for value in curve[:: max(1, steps // CURVE)].tolist()],
    }
    finite = all(math.isfinite(value) for value in record["metrics"].values())
    if diverged_at >= 0 or not finite:
        record |= {"metrics": {}, "diverged_at": diverged_at if diverged_at >= 0 else steps}
    return record
