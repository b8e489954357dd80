"""Training and measuring every posterior of the book on one split of a set."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.bounds import sampled_bounds
from experiments.common.measuring import significant
from experiments.common.uci_splits import CURVE
from experiments.comparisons import measures, posteriors, posteriors_images
from experiments.comparisons.methods import METHODS, WIDTHS, Method
from experiments.comparisons.posteriors import PRIOR_VARIANCE, SCALES, PosteriorConfig
from experiments.comparisons.tasks import Task, image_task, measured, task, validation_task
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

BURN_IN_STEPS = 4  # of HMC go into one of later steps: from the prior, the way is steep
AT_ONCE = 2**16  # draws × points: bounds the memory of an evaluation


def run(config: PosteriorConfig, job: Job) -> Record:
    """Train on a split and measure on its test part.

    Returns:
        A record: `tasks.measured` of the test data; of images `auroc`, how well those of the other set are
        told by their entropy; of posteriors with a bound on the evidence the ELBO per training point (nats on
        normalised targets), of Laplace the evidence of the last layer instead; of regression the noise
        variance (normalised, of an ensemble the mean); seconds of training, by the clock and of this process
        alone, for as many steps as were done in all, and of predicting the test data; where there is HMC,
        moments of every test point; thinned training curve.
    """
    if config.method == "hmc":
        return _sampled(config, task(config.dataset, config.split, torch.float64), job)
    method = METHODS[config.method]
    if config.images:
        return trained(method, config, image_task(config.dataset, config.split, config.images), job)
    return trained(method, config, task(config.dataset, config.split), job)


def search(config: PosteriorConfig, job: Job) -> Record:
    """The same on held-out points of the split's training data: no test data of the set are read.

    Of images `auroc` is against test images of the other set; nothing is chosen by it.
    """
    if config.images:
        held_out = image_task(config.dataset, config.split, config.images, validation=True)
    else:
        held_out = validation_task(config.dataset, config.split)
    record = trained(METHODS[config.method], config, held_out, job)
    return record | {"curve": record["curve"][::10]}


def trained(method: Method, config: PosteriorConfig, on: Task, job: Job) -> Record:
    """Train, predict, measure; a training that breaks down is recorded as diverged."""
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
        return _diverged(config, on, error)
    return _body(config, on, metrics, history.elbo)


def _training(method: Method, config: PosteriorConfig, on: Task) -> Training:
    """What is trained on a task."""
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
    """What `run` trains.

    Raises:
        ValueError: for Hamiltonian Monte Carlo, which trains nothing.
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
    """Noise that is learned, or probabilities of classes."""
    if on.classes:
        return gilib.Categorical()
    return gilib.Gaussian(method.noise, learn=True, replicas=method.replicas)


def _seconds(begin: tuple[float, float], history: gilib.training.History) -> dict[str, float]:
    """Of the whole training; of this process alone, whatever else the machine does."""
    whole = len(history.elbo) / max(1, len(history.elbo) - history.resumed_at)
    return {
        "train_seconds": (time.perf_counter() - begin[0]) * whole,
        "train_process_seconds": (time.process_time() - begin[1]) * whole,
    }


def _measured(
    config: PosteriorConfig, drawable: Drawable, likelihood: Likelihood, on: Task
) -> dict[str, Any]:
    """Predict the test data: how well, in how many seconds; of regression, noise and moments."""
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
    """The ELBO per training point and its standard error over the draws, where it is one."""
    if not method.bound:
        return {}
    source = torch.Generator(on.x.device).manual_seed(2000 + config.split)
    samples = config.test_samples
    found = sampled_bounds(net, likelihood, on.x, on.y, samples, max(1, AT_ONCE // samples), source)
    return {"elbo": float(found.mean()), "elbo_stderr": float(found.std()) / math.sqrt(samples)}


def _evidence(drawable: Drawable, on: Task) -> dict[str, float]:
    """Of the last layer per training point, where Laplace's approximation has it."""
    if not isinstance(drawable, Laplace):
        return {}
    return {"log_evidence": float(drawable.log_evidence) / len(on.y)}


def _body(config: PosteriorConfig, on: Task, metrics: dict[str, Any], curve: Tensor) -> Record:
    """A record: numbers with six digits; moments where there is HMC; thinned curve, of members the mean."""
    shown = metrics.pop("test_points", None)
    if not all(math.isfinite(value) for value in metrics.values()):
        return _diverged(config, on, ValueError("predictions are not finite"))
    mean = curve if curve.dim() == 1 else curve.mean(1)
    every = max(1, config.steps // CURVE)
    record: Record = {
        "data": on.data,
        "metrics": {name: significant(value) for name, value in metrics.items()},
        "curve": [significant(value) for value in mean[::every].tolist()],
    }
    return record | ({"test_points": shown} if config.dataset in SCALES[config.scale].hmc else {})


def _diverged(config: PosteriorConfig, on: Task, error: Exception) -> Record:
    return {
        "data": on.data,
        "metrics": {},
        "curve": [],
        "diverged_at": config.steps,
        "why": str(error)[:200],
    }


def _sampled(config: PosteriorConfig, on: Task, job: Job) -> Record:
    """Chains of the same network under the same prior, with the noise that global inducing learned."""
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
    """Of the leapfrog integrator, in prior standard deviations."""
    return float(f"{posteriors.STEP_SIZES[config.dataset] * math.sqrt(config.setting):.3g}")


EXPERIMENTS = {
    name: Experiment(
        about,
        PosteriorConfig,
        grid,
        one_by_one(one),
        check=check,
        build=training if one is run else None,
    )
    for name, about, grid, one, check in (
        (
            "posteriors_search",
            "Settings of the posteriors on validation data",
            posteriors.search,
            search,
            posteriors.check,
        ),
        (
            "posteriors",
            "Posteriors, point estimates and ensembles on the same UCI splits",
            posteriors.tables,
            run,
            posteriors.check,
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
