"""Train and measure the posteriors of the book on one split of a set."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.bounds import sampled_bounds
from experiments.common.measuring import significant
from experiments.common.uci_splits import CURVE, check
from experiments.comparisons import measures, posteriors, posteriors_images
from experiments.comparisons.methods import METHODS, WIDTHS, Method
from experiments.comparisons.posteriors import PRIOR_VARIANCE, SCALES, PosteriorConfig
from experiments.comparisons.tasks import Task, broken, image_task, measured, task, validation_task
from experiments.kurle2024.measures import told_apart
from experiments.runner.experiment import Experiment, Job, Training, one_by_one
from experiments.runner.records import Record
from gilib.baselines import Chains, HMCSettings, Laplace, hmc
from gilib.likelihoods import Likelihood
from gilib.likelihoods.mixtures import GaussianPrediction, Prediction
from gilib.linalg import FactorisationError
from gilib.objectives import SteppedTempering
from gilib.prediction.drawables import Drawable
from gilib.training import DivergenceError

BURN_IN_STEPS = 4  # HMC's steps in burn-in are shorter by this factor: the density is steep near the prior
AT_ONCE = 2**16  # draws × points, which limits the memory of an evaluation


def run(config: PosteriorConfig, job: Job) -> Record:
    """Train on a split and measure on its test part.

    Returns:
        A record: the metrics of `tasks.measured` on the test data; for images `auroc`, which measures how
        well entropy detects the other set; the ELBO per training point (nats on normalised targets) if it is
        a bound, or for Laplace the evidence of the last layer; for regression the noise variance (normalised;
        the mean for an ensemble); seconds of training, wall-clock and processor time, scaled to all steps,
        and of predicting the test data; moments of every test point if the set has HMC; thinned training
        curve.
    """
    if config.method == "hmc":
        return _sampled(config, task(config.dataset, config.split, torch.float64), job)
    method = METHODS[config.method]
    if config.images:
        return trained(method, config, image_task(config.dataset, config.split, config.images), job)
    return trained(method, config, task(config.dataset, config.split), job)


def search(config: PosteriorConfig, job: Job) -> Record:
    """Train and measure on held-out points of the split's training data, without its test data.

    For images `auroc` uses test images of the other set, but it determines no choice.
    """
    if config.images:
        held_out = image_task(config.dataset, config.split, config.images, validation=True)
    else:
        held_out = validation_task(config.dataset, config.split)
    record = trained(METHODS[config.method], config, held_out, job)
    return record | {"curve": record["curve"][::10]}


def trained(method: Method, config: PosteriorConfig, on: Task, job: Job) -> Record:
    """Train, predict and measure; a training that breaks down is recorded as diverged."""
    on = on.to(job.device)
    own = _training(method, config, on)
    net, likelihood = own.start()
    clock = (time.perf_counter(), time.process_time())
    try:
        history = gilib.fit(net, likelihood, on.x, on.y, **own.settings, **job.fit_options())
        drawable = method.drawable(net, likelihood, on, own.settings["callbacks"])
        metrics: dict[str, Any] = _seconds(clock, history)
        metrics |= _all_measured(method, config, drawable, net, likelihood, on)
    except (DivergenceError, FactorisationError) as error:
        return broken(on, config.steps, error)
    return _body(config, on, metrics, history.elbo)


def _training(method: Method, config: PosteriorConfig, on: Task) -> Training:
    """Return the training of a method on a task."""
    stored = method.stored(config)
    settings = {
        "steps": config.steps,
        "rule": method.rule(config),
        "num_samples": config.num_samples,
        "batch_size": config.batch_size,
        "estimator": method.estimator,
        "kl_weight": None if method.kl_weight == 1.0 else SteppedTempering(0, last=method.kl_weight),
        "seed": method.seeds(config),
        "callbacks": stored,
    }

    def start(**changed: Any) -> tuple[gilib.Network, Likelihood]:
        net = method.network(config, on, **changed)
        return net.to(on.x.device), _likelihood(method, on).to(on.x.device)

    def measure(net: gilib.Network, likelihood: Likelihood) -> dict[str, Any]:
        drawable = method.drawable(net, likelihood, on, stored)
        return _all_measured(method, config, drawable, net, likelihood, on)

    return Training(start, on.x, on.y, settings, measure, on.test_x, on.test_y)


def training(config: PosteriorConfig, device: torch.device) -> Training:
    """Return the training that `run` performs.

    Raises:
        ValueError: for Hamiltonian Monte Carlo, which has no training.
    """
    if config.method == "hmc":
        raise ValueError("hmc runs chains (gilib.baselines.hmc), and trains no network: name another method")
    images = config.images
    own = image_task(config.dataset, config.split, images) if images else task(config.dataset, config.split)
    return _training(METHODS[config.method], config, own.to(device))


def _all_measured(
    method: Method,
    config: PosteriorConfig,
    drawable: Drawable,
    net: gilib.Network,
    likelihood: Likelihood,
    on: Task,
) -> dict[str, Any]:
    metrics = _measured(config, drawable, likelihood, on)
    metrics |= _bound(config, method, net, likelihood, on)
    return metrics | _evidence(drawable, on)


def _likelihood(method: Method, on: Task) -> Likelihood:
    """Return a Gaussian likelihood with learned noise, or a categorical one."""
    if on.classes:
        return gilib.Categorical()
    return gilib.Gaussian(method.noise, learn=True, replicas=method.replicas)


def _seconds(begin: tuple[float, float], history: gilib.training.History) -> dict[str, float]:
    """Return wall-clock and processor seconds of the complete training."""
    whole = len(history.elbo) / max(1, len(history.elbo) - history.resumed_at)
    return {
        "train_seconds": (time.perf_counter() - begin[0]) * whole,
        "train_process_seconds": (time.process_time() - begin[1]) * whole,
    }


def _measured(
    config: PosteriorConfig, drawable: Drawable, likelihood: Likelihood, on: Task
) -> dict[str, Any]:
    """Predict the test data, and return metrics and seconds, with noise and moments for regression."""
    source = torch.Generator(on.x.device).manual_seed(4000 + config.split)

    def predicted(x: Tensor) -> Prediction:
        samples = config.test_samples
        size = max(1, AT_ONCE // samples)
        return gilib.predict(drawable, likelihood, x, samples, batch_size=size, generator=source)

    begin = time.perf_counter()
    found = predicted(on.test_x)
    metrics: dict[str, Any] = measured(found, on) | {"predict_seconds": time.perf_counter() - begin}
    if isinstance(found, GaussianPrediction) and isinstance(likelihood, gilib.Gaussian):
        noise = likelihood.noise_variance.detach().double()
        found = GaussianPrediction(found.means.double(), found.component_sd.double())
        metrics |= {"noise_variance": float(noise.mean()), "test_points": measures.moments(found, noise)}
    if on.other is not None:
        told = told_apart(found.mean, predicted(on.other).mean)
        metrics |= {"auroc": told["auroc_entropy"]}
    return metrics


def _bound(
    config: PosteriorConfig, method: Method, net: gilib.Network, likelihood: Likelihood, on: Task
) -> dict[str, float]:
    """Return the ELBO per training point and its standard error over draws, if it is a bound."""
    if not method.bound:
        return {}
    source = torch.Generator(on.x.device).manual_seed(2000 + config.split)
    samples = config.test_samples
    found = sampled_bounds(net, likelihood, on.x, on.y, samples, max(1, AT_ONCE // samples), source)
    return {"elbo": float(found.mean()), "elbo_stderr": float(found.std()) / math.sqrt(samples)}


def _evidence(drawable: Drawable, on: Task) -> dict[str, float]:
    """Return the Laplace evidence of the last layer per training point, if there is one."""
    if not isinstance(drawable, Laplace):
        return {}
    return {"log_evidence": float(drawable.log_evidence) / len(on.y)}


def _body(config: PosteriorConfig, on: Task, metrics: dict[str, Any], curve: Tensor) -> Record:
    """Return the body of a record; the thinned curve of an ensemble is the mean over members."""
    shown = metrics.pop("test_points", None)
    if not all(math.isfinite(value) for value in metrics.values()):
        return broken(on, config.steps, "predictions are not finite")
    mean = curve if curve.dim() == 1 else curve.mean(1)
    every = max(1, config.steps // CURVE)
    record: Record = {
        "data": on.data,
        "metrics": {name: significant(value) for name, value in metrics.items()},
        "curve": [significant(value) for value in mean[::every].tolist()],
    }
    return record | ({"test_points": shown} if config.dataset in SCALES[config.scale].hmc else {})


def _sampled(config: PosteriorConfig, on: Task, job: Job) -> Record:
    """Run HMC for the same network and prior, with the noise that global inducing learned."""
    settings = HMCSettings(
        burn_in=config.steps,
        samples=config.steps,
        thin=max(1, 4 * config.steps // 1000),
        leapfrog_steps=config.leapfrog_steps,
        step_size_burn_in=float(f"{step_size(config) / BURN_IN_STEPS:.3g}"),
        step_size=step_size(config),
        coordinates="scaled",
        seed=config.split,
        jitter=config.jitter,
    )
    widths = (on.x.shape[1], WIDTHS.get(config.dataset, 50), 1)
    prior = gilib.NealPrior(math.sqrt(PRIOR_VARIANCE))
    chains = hmc(widths, on.x, on.y, config.setting, prior, settings, **job.chain_options())
    metrics = _measured(config, chains, chains.likelihood, on)
    metrics |= {"train_seconds": chains.seconds} | _diagnostics(chains, on.test_x)
    return _body(config, on, metrics, chains.log_joint.mean(0) / len(on.x))


def _diagnostics(chains: Chains, x: Tensor) -> dict[str, float]:
    found = chains.diagnostics(x)
    kept = ("r_hat_worst", "r_hat_log_joint", "effective_worst", "effective_log_joint")
    return {name: found[name] for name in kept} | {"acceptance": float(chains.acceptance.mean())}


def step_size(config: PosteriorConfig) -> float:
    """Return the step size of the leapfrog integrator, in prior standard deviations."""
    return float(f"{posteriors.STEP_SIZES[config.dataset] * math.sqrt(config.setting):.3g}")


EXPERIMENTS = {
    name: Experiment(
        about,
        PosteriorConfig,
        grid,
        one_by_one(one),
        check=ready,
        build=training if one is run else None,
    )
    for name, about, grid, one, ready in (
        (
            "posteriors_search",
            "Settings of the posteriors on validation data",
            posteriors.search,
            search,
            check,
        ),
        (
            "posteriors",
            "Posteriors, point estimates and ensembles on the same UCI splits",
            posteriors.tables,
            run,
            check,
        ),
        (
            "posteriors_images_search",
            "The same settings on validation images",
            posteriors_images.search,
            search,
            posteriors_images.check,
        ),
        (
            "posteriors_images",
            "The same posteriors on images, and told which do not belong",
            posteriors_images.tables,
            run,
            posteriors_images.check,
        ),
    )
}
