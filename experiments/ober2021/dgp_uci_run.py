"""Train deep Gaussian processes on UCI sets, with splits as replicas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.bounds import sampled_bounds
from experiments.common.measuring import significant
from experiments.common.uci_splits import Data, check, load, records
from experiments.ober2021 import dgp_uci
from experiments.ober2021.dgp_uci import DgpConfig, ExactConfig
from experiments.runner.experiment import Experiment, Job, Training, one_by_one
from experiments.runner.records import Record
from gilib.kernels import RBF
from gilib.linalg import failures_as_nan
from gilib.models import inducing_start
from gilib.posteriors import Posterior
from gilib.randomness import ReplicaGenerators
from gilib.recipes.processes import ProcessRecipe
from gilib.training import LinearDecay, solve_posterior

FEATURES = 1024  # random features of the paths that predict; the last layer is integrated in closed form
ESTIMATED_AT_ONCE = 2**17  # draws × replicas × points, which limits the memory of the ELBO
PREDICTED_AT_ONCE = 2**14  # draws × replicas × points, which limits the memory of paths


def run(configs: Sequence[DgpConfig], job: Job) -> list[Record]:
    """Train the splits of one set, method and depth together and measure them.

    Returns:
        One record for each: the ELBO per training point (nats on normalised targets, with its standard error
        over draws); log-likelihood and RMSE on the test data, in original units; noise variance; variance,
        and smallest, median and largest lengthscale, of every layer's kernel; thinned training curve.
    """
    data = load(configs[0].dataset, [config.split for config in configs], job.device)
    own = training(configs, data)
    net, likelihood = own.start()
    history = gilib.fit(net, likelihood, own.x, own.y, **own.settings, **job.fit_options())
    bodies = records(data, history, own.measure(net, likelihood))
    for replica, body in enumerate(bodies):
        if body["metrics"]:
            body["metrics"] |= kernels(net, replica)
    return bodies


def training(configs: Sequence[DgpConfig], data: Data) -> Training:
    """Return the training, with a replica for each split."""
    config, seeds = configs[0], [config.split for config in configs]
    settings = {
        "steps": config.steps,
        "batch_size": config.batch_size,
        "num_samples": config.num_samples,
        "rule": gilib.Adam(config.lr, schedule=LinearDecay(start=0.5) if config.decay else None),
        "seed": seeds,
        "estimator": "pointwise",
        "on_divergence": "freeze",
    }

    def measure(net: gilib.Network, likelihood: gilib.Gaussian) -> dict[str, Tensor]:
        with torch.no_grad(), failures_as_nan():
            results = measure_elbo(net, likelihood, data, config.elbo_samples, seeds)
            results |= measure_test(net, likelihood, data, config.test_samples, seeds)
        return results | {"noise_variance": likelihood.noise_variance.detach()}

    start = partial(build, config, data, seeds)
    return Training(start, data.x, data.y, settings, measure, data.test_x, data.test_y)


def run_exact(config: ExactConfig, job: Job) -> Record:
    """Maximise the evidence of a Gaussian process with an RBF kernel, and measure it like `run`.

    The search starts from three noise variances, because the evidence has several maxima. Its own objective
    counts what rounded targets cost, too (see `gilib.training.Collapsed`); the evidence recorded does not.
    """
    data = load(config.dataset, [config.split], job.device, torch.float64)
    recipe = ProcessRecipe(kernels=(RBF(),), steps=200, num_inducing=data.x.shape[1])
    searches = [replace(recipe, noise_variance=value) for value in (0.05, 0.01, 0.001)]
    ends = [search.train(data.x[0], data.y[0], progress=False) for search in searches]
    net, likelihood, _ = max(ends, key=lambda end: float(end.history.elbo[-1]))
    assert isinstance(likelihood, gilib.Gaussian)
    evidence = solve_posterior(net, likelihood, data.x[0], data.y[0]) / len(data.x[0])
    found, scale = gilib.predict(net, likelihood, data.test_x[0], 1), data.y_std[0]
    metrics = {
        "evidence": evidence,
        "test_log_likelihood": found.log_prob(data.test_y[0]).mean() - scale.log(),
        "rmse": gilib.metrics.rmse(found.mean, data.test_y[0]) * scale,
        "noise_variance": likelihood.noise_variance.detach(),
    }
    numbers = {name: significant(float(value)) for name, value in metrics.items()}
    return {"data": {"name": data.name, "sha256": data.sha256}, "metrics": numbers}


def alone(config: DgpConfig, device: torch.device) -> Training:
    """Return the training of one split."""
    return training([config], load(config.dataset, [config.split], device))


def build(
    config: DgpConfig, data: Data, seeds: Sequence[int], **changed: Any
) -> tuple[gilib.Network, gilib.Gaussian]:
    """Build one network with a replica for each split, initialised on the CPU as in App. O."""
    replicas, inducing = (len(seeds),), min(config.num_inducing, data.x.shape[1])
    points, targets = start("dsvi" if config.centred else config.method, data, inducing, seeds)
    make = partial(
        gilib.models.deep_gp,
        data.x.shape[-1],
        data.y.shape[-1],
        config.depth,
        width=min(data.x.shape[-1], config.width),
        posterior=posteriors(config, inducing),
        kernel=gilib.kernels.RBF(config.lengthscale, config.variance),
        inducing_points=points,
        pseudo_outputs=targets,
        replicas=replicas,
        generator=ReplicaGenerators([1000 + seed for seed in seeds]),
        dtype=data.x.dtype,
        num_features=FEATURES,
    )
    noise = gilib.Gaussian(config.noise_variance, learn=True, replicas=replicas)
    return make(**changed).to(data.x.device), noise.to(data.x.device)


def posteriors(config: DgpConfig, inducing: int) -> list[Posterior]:
    """Return the posterior of every layer; precisions are full matrices that start diagonal (App. O)."""
    hidden = [_posterior(config, config.hidden or config.method, inducing, False)] * (config.depth - 1)
    return [*hidden, _posterior(config, config.method, inducing, True)]


def _posterior(config: DgpConfig, method: str, inducing: int, last: bool) -> Posterior:
    if method == "dsvi":
        return gilib.FreeGaussian(initial_scale=1.0 if last else config.hidden_scale)
    if method == "li":
        return gilib.LocalInducing(
            inducing, precision="full", log_precision=0.0, marginalise=config.marginalise
        )
    return gilib.GlobalInducing(precision="full", log_precision=0.0 if last else -4.0)


def start(
    method: str, data: Data, inducing: int, seeds: Sequence[int]
) -> tuple[Tensor | None, Tensor | None]:
    """Return initial inducing inputs `[R, M, D]` and last pseudo-outputs `[R, M, 1]`.

    "dsvi" starts at k-means centres, "gi" at the first batch of training inputs in random order, with their
    targets, and "li" at standard normals (None).
    """
    if method == "li":
        return None, None
    if method == "dsvi":
        centres = [inducing_start(x, inducing, seed=s) for x, s in zip(data.x.cpu(), seeds, strict=True)]
        return torch.stack(centres), None
    points = data.x.shape[1]
    generators = [torch.Generator().manual_seed(3000 + seed) for seed in seeds]
    chosen = [torch.randperm(points, generator=generator)[:inducing] for generator in generators]
    inputs, targets = (
        torch.stack([values[k] for values, k in zip(part.cpu(), chosen, strict=True)])
        for part in (data.x, data.y)
    )
    return inputs, targets


def measure_elbo(
    net: gilib.Network, likelihood: gilib.Gaussian, data: Data, samples: int, seeds: Sequence[int]
) -> dict[str, Tensor]:
    """Return the ELBO per training point and its standard error over draws, each `[R]`."""
    source = ReplicaGenerators([2000 + seed for seed in seeds], data.x.device)
    batch = max(1, ESTIMATED_AT_ONCE // (samples * len(seeds)))
    bounds = sampled_bounds(net, likelihood, data.x, data.y, samples, batch, source)
    return {"elbo": bounds.mean(0), "elbo_stderr": bounds.std(0) / math.sqrt(samples)}


def measure_test(
    net: gilib.Network, likelihood: gilib.Gaussian, data: Data, samples: int, seeds: Sequence[int]
) -> dict[str, Tensor]:
    """Return test log-likelihood per point and RMSE of the mixture over draws, original units, each `[R]`."""
    source = ReplicaGenerators([4000 + seed for seed in seeds], data.x.device)
    size = max(1, PREDICTED_AT_ONCE // (samples * len(seeds)))
    found = gilib.predict(net, likelihood, data.test_x, samples, batch_size=size, generator=source)
    log_prob = found.log_prob(data.test_y).mean(-1)
    return {
        "test_log_likelihood": log_prob - data.y_std.log(),
        "rmse": gilib.metrics.rmse(found.mean, data.test_y) * data.y_std,
    }


def kernels(net: gilib.Network, replica: int) -> dict[str, Any]:
    """Return variance, and smallest, median and largest lengthscale, of every layer's kernel."""
    logs = {name: values[replica].detach() for name, values in net.named_parameters()}
    variances = [float(log.exp()) for name, log in logs.items() if name.endswith("log.variance")]
    lengths = [log.exp() for name, log in logs.items() if name.endswith("log.lengthscale")]
    middle = [(each.min(), each.median(), each.max()) for each in lengths]
    return {
        "kernel_variances": [significant(value) for value in variances],
        "lengthscales": [[significant(float(value)) for value in values] for values in middle],
    }


def splits_together(about: str, configurations: Callable[[str], Iterator[DgpConfig]]) -> Experiment:
    """Return an experiment with splits as replicas."""
    return Experiment(
        about, DgpConfig, configurations, run, dgp_uci.group_key, check, largest_group=20, build=alone
    )


EXPERIMENTS = {
    "dgp_uci": splits_together("Tables 8-10: deep Gaussian processes on nine UCI sets", dgp_uci.tables),
    "dgp_exact": Experiment(
        "Tables 8-10: the evidence of one layer, exactly",
        ExactConfig,
        dgp_uci.exact,
        one_by_one(run_exact),
        check=check,
        scales=("smoke", "paper"),
    ),
    "dgp_settings": splits_together(
        "Kernels at the start and learning rates of two layers of Tables 8-10, for the bound to choose among",
        dgp_uci.settings,
    ),
    "dgp_attempts": splits_together(
        "Attempts to win yacht, energy, kin8nm, power and protein with two layers of global inducing points",
        dgp_uci.attempts,
    ),
    "dgp_start": splits_together(
        "Where the free Gaussians of Tables 8-10 start, and how slowly Adam leaves 1e-5", dgp_uci.starts
    ),
}
