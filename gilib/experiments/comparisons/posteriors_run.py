"""Training and measuring every posterior of the book on one split of a UCI set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import gilib
from gilib.baselines import Chains, HMCSettings, hmc
from gilib.experiments.common.bounds import sampled_bounds
from gilib.experiments.common.measuring import significant
from gilib.experiments.common.uci_splits import CURVE, Data, load, load_validation
from gilib.experiments.comparisons import measures, posteriors
from gilib.experiments.comparisons.methods import METHODS, WIDTHS, Method, Points
from gilib.experiments.comparisons.posteriors import PRIOR_VARIANCE, SCALES, PosteriorConfig
from gilib.experiments.runner.experiment import Experiment, Job, one_by_one
from gilib.experiments.runner.records import Record
from gilib.likelihoods.mixtures import GaussianPrediction
from gilib.linalg import FactorisationError
from gilib.objectives import SteppedTempering
from gilib.prediction.drawables import Drawable
from gilib.training import DivergenceError

BURN_IN_STEPS = 4  # of HMC go into one of later steps: from the prior, the way is steep
AT_ONCE = 2**16  # draws × points: bounds the memory of an evaluation


def run(config: PosteriorConfig, job: Job) -> Record:
    """Train on a published split and measure on its test part.

    Returns:
        A record: `measures.measure` of the test data; of posteriors with a bound on the evidence the ELBO per
        training point (nats on normalised targets); the noise variance (normalised, of an ensemble the mean);
        seconds of training, by the clock and of this process alone, for as many steps as were done in all,
        and of predicting the test data; where there is HMC, moments of every test point; thinned training
        curve.
    """
    data = load(config.dataset, [config.split], job.device)
    if config.method == "hmc":
        return _sampled(config, data, job)
    return _trained(config, data, job)


def search(config: PosteriorConfig, job: Job) -> Record:
    """The same on held-out points of the split's training data: no test data are read."""
    record = _trained(config, load_validation(config.dataset, [config.split], job.device), job)
    return record | {"curve": record["curve"][::10]}


def _trained(config: PosteriorConfig, data: Data, job: Job) -> Record:
    """Train, predict, measure; a training that breaks down is recorded as diverged."""
    method, points = METHODS[config.method], Points(data.x[0], data.y[0])
    net = method.network(config, points).to(job.device)
    likelihood = gilib.Gaussian(method.noise, learn=True, replicas=method.replicas).to(job.device)
    stored = method.stored(config)
    clock = (time.perf_counter(), time.process_time())
    try:
        history = gilib.fit(
            net,
            likelihood,
            points.x,
            points.y,
            steps=config.steps,
            rule=method.rule(config),
            num_samples=config.num_samples,
            batch_size=config.batch_size,
            estimator=method.estimator,
            kl_weight=None if method.kl_weight == 1.0 else SteppedTempering(0, last=method.kl_weight),
            seed=method.seeds(config),
            callbacks=stored,
            **job.fit_options(),
        )
        drawable = method.drawable(net, likelihood, points, stored)
        seconds = _seconds(clock, history)
        metrics = seconds | _measured(config, drawable, likelihood, data)
        metrics |= _bound(config, method, net, likelihood, points)
    except (DivergenceError, FactorisationError) as error:
        return _diverged(config, data, error)
    return _body(config, data, metrics, history.elbo)


def _seconds(begin: tuple[float, float], history: gilib.training.History) -> dict[str, float]:
    """Of the whole training; of this process alone, whatever else the machine does."""
    whole = len(history.elbo) / max(1, len(history.elbo) - history.resumed_at)
    return {
        "train_seconds": (time.perf_counter() - begin[0]) * whole,
        "train_process_seconds": (time.process_time() - begin[1]) * whole,
    }


def _measured(
    config: PosteriorConfig, drawable: Drawable, likelihood: gilib.Gaussian, data: Data
) -> dict[str, Any]:
    """Predict the test data: how well, in how many seconds, and with which moments."""
    source = torch.Generator(data.x.device).manual_seed(4000 + config.split)
    x, targets = data.test_x[0], data.test_y[0]
    begin = time.perf_counter()
    found = gilib.predict(
        drawable,
        likelihood,
        x,
        config.test_samples,
        batch_size=max(1, AT_ONCE // config.test_samples),
        generator=source,
    )
    assert isinstance(found, GaussianPrediction)
    seconds, noise = time.perf_counter() - begin, likelihood.noise_variance.detach()
    found = GaussianPrediction(found.means.double(), found.component_sd.double())
    metrics = measures.measure(found, targets.double(), data.y_std[0].double())
    metrics |= {"noise_variance": float(noise.mean()), "predict_seconds": seconds}
    return metrics | {"test_points": measures.moments(found, noise.double())}


def _bound(
    config: PosteriorConfig, method: Method, net: gilib.Network, likelihood: gilib.Gaussian, points: Points
) -> dict[str, float]:
    """The ELBO per training point and its standard error over the draws, where it is one."""
    if not method.bound:
        return {}
    source = torch.Generator(points.x.device).manual_seed(2000 + config.split)
    samples = config.test_samples
    found = sampled_bounds(net, likelihood, *points, samples, max(1, AT_ONCE // samples), source)
    return {"elbo": float(found.mean()), "elbo_stderr": float(found.std()) / math.sqrt(samples)}


def _body(config: PosteriorConfig, data: Data, metrics: dict[str, Any], curve: Tensor) -> Record:
    """A record: numbers with six digits; moments where there is HMC; thinned curve, of members the mean."""
    shown = metrics.pop("test_points")
    if not all(math.isfinite(value) for value in metrics.values()):
        return _diverged(config, data, ValueError("predictions are not finite"))
    mean = curve if curve.dim() == 1 else curve.mean(1)
    every = max(1, config.steps // CURVE)
    record: Record = {
        "data": {"name": data.name, "sha256": data.sha256},
        "metrics": {name: significant(value) for name, value in metrics.items()},
        "curve": [significant(value) for value in mean[::every].tolist()],
    }
    return record | ({"test_points": shown} if config.dataset in SCALES[config.scale].hmc else {})


def _diverged(config: PosteriorConfig, data: Data, error: Exception) -> Record:
    return {
        "data": {"name": data.name, "sha256": data.sha256},
        "metrics": {},
        "curve": [],
        "diverged_at": config.steps,
        "why": str(error)[:200],
    }


def _sampled(config: PosteriorConfig, data: Data, job: Job) -> Record:
    """Chains of the same network under the same prior, with the noise that global inducing learned."""
    x, y = data.x[0].cpu().double(), data.y[0].cpu().double()
    settings = HMCSettings(
        burn_in=config.steps,
        samples=config.steps,
        thin=max(1, 4 * config.steps // 1000),
        leapfrog_steps=config.leapfrog_steps,
        step_size_burn_in=float(f"{step_size(config) / BURN_IN_STEPS:.3g}"),
        step_size=step_size(config),
        coordinates="scaled",
        seed=config.split,
    )
    widths = (x.shape[1], WIDTHS.get(config.dataset, 50), 1)
    prior = gilib.NealPrior(math.sqrt(PRIOR_VARIANCE))
    chains = hmc(widths, x, y, config.setting, prior, settings, **job.chain_options())
    exact = load(config.dataset, [config.split], torch.device("cpu"), torch.float64)
    metrics = _measured(config, chains, chains.likelihood, exact)
    metrics |= {"train_seconds": chains.seconds} | _diagnostics(chains, exact.test_x[0])
    return _body(config, data, metrics, chains.log_joint.mean(0) / len(x))


def _diagnostics(chains: Chains, x: Tensor) -> dict[str, float]:
    found = chains.diagnostics(x)
    kept = ("r_hat_worst", "r_hat_log_joint", "effective_worst", "effective_log_joint")
    return {name: found[name] for name in kept} | {"acceptance": float(chains.acceptance.mean())}


def step_size(config: PosteriorConfig) -> float:
    """Of the leapfrog integrator, in prior standard deviations."""
    return float(f"{posteriors.STEP_SIZES[config.dataset] * math.sqrt(config.setting):.3g}")


def _experiment(
    about: str, grid: Callable[..., Any], one: Callable[[PosteriorConfig, Job], Record]
) -> Experiment:
    return Experiment(about, PosteriorConfig, grid, one_by_one(one), check=posteriors.check)


EXPERIMENTS = {
    "posteriors_search": _experiment(
        "Settings of the posteriors on validation data", posteriors.search, search
    ),
    "posteriors": _experiment("Every posterior of the book on the same UCI splits", posteriors.tables, run),
}
