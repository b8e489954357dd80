"""BALI and Bayes by Backprop on synthetic problems: Kurle et al. (2024), Figs. 1 and 4 to 6.

The network is the paper's, 3 × 256 tanh units. The paper draws mean and one standard deviation from 256
samples of weights. In our copy it states neither its settings nor the factors of the Kullback-Leibler term in
Figs. 4 to 6.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import gilib
from experiments.common.measuring import rounded, significant
from experiments.kurle2024 import problems
from experiments.kurle2024.problems import SyntheticProblem
from experiments.kurle2024.settings import KL_WEIGHTS
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.objectives import SteppedTempering
from gilib.training import Bali, CosineDecay

SAMPLES = 256
LEAST = 1e-4  # a fourth weight, at which few points overcome the prior
PRIORS = {"bali": "absolute", "bali_paper": "relative"}
STEPS = {"smoke": (3, 3), "reduced": (300, 2000), "paper": (5000, 20_000)}  # of BALI; of Bayes by Backprop


@dataclass(frozen=True)
class ToyConfig:
    """One training.

    Attributes:
        problem: "sines", "sinc" or "moons".
        method: "bali", "bali_paper" or "bbb".
        steps: steps, each on all points.
        lr: α, or Adam's learning rate.
        prior_variance: v_0.
        update_rate: β.
        kl_weight: factor of the Kullback-Leibler term of Bayes by Backprop.
        seed: seed of data, initial values and noise.
        width: width of the three hidden layers.
        decay: whether rates fall to a tenth in the second half.
        scale: scale of the experiment.
    """

    problem: str
    method: str
    steps: int
    lr: float = 0.3
    prior_variance: float = 10.0
    update_rate: float = 0.2
    kl_weight: float = 1.0
    seed: int = 0
    width: int = 256
    decay: bool = True
    scale: str = "paper"


def grid(scale: str) -> Iterator[ToyConfig]:
    """Yield BALI with both priors and several variances, then Bayes by Backprop with four KL factors.

    Bayes by Backprop has prior variances 1 and 100; with the latter BALI fits.
    """
    layerwise, gradient = STEPS[scale]
    width = 5 if scale == "smoke" else 256
    variances = {"bali": (10.0, 100.0), "bali_paper": (1.0, 100.0, 10_000.0)}
    for name in ("sines", "sinc", "moons"):
        for method, values in variances.items():
            common: dict[str, Any] = {"width": width, "scale": scale}
            for variance in values:
                yield ToyConfig(name, method, layerwise, prior_variance=variance, **common)
            yield ToyConfig(name, method, layerwise, prior_variance=100.0, decay=False, **common)
        for variance, weight in itertools.product((1.0, 100.0), (*KL_WEIGHTS, LEAST)):
            yield ToyConfig(name, "bbb", gradient, 0.01, variance, kl_weight=weight, **common)


def run(config: ToyConfig, job: Job) -> Record:
    """Train and measure one configuration.

    Returns:
        A record in normalised units. For a regression it has the mean prediction at the grid, the standard
        deviation of the function (`function_sd`) and with noise (`sd`), the true function and the data;
        `train_rmse`; `error` of the mean and mean `function_sd`, near data and away from them. For moons it
        has the probability of class 1 and its standard deviation over draws.
    """
    problem = problems.load(config.problem, config.seed)
    net, likelihood = build(config, problem)
    net, likelihood = net.to(job.device), likelihood.to(job.device)
    gilib.fit(
        net,
        likelihood,
        problem.x.to(job.device),
        problem.y.to(job.device),
        steps=config.steps,
        num_samples=1,
        seed=config.seed,
        **settings_of(config),
        **job.fit_options(),
    )
    found = _regression(config, problem, net, likelihood) if problem.true_function is not None else None
    found = found or _classification(config, problem, net, likelihood)
    data = {"name": problem.name, "sha256": problem.sha256}
    points = {"x": rounded(problem.x, 3), "y": rounded(problem.y.double(), 3)}
    return {"data": data, "metrics": found | points | {"grid": rounded(problem.grid, 3)}}


def build(config: ToyConfig, problem: SyntheticProblem) -> tuple[gilib.Network, gilib.likelihoods.Likelihood]:
    """Build network and likelihood, with learned noise."""
    labels = problem.true_function is None
    net = gilib.models.mlp(
        problem.x.shape[1],
        (config.width,) * 3,
        2 if labels else 1,
        posterior=gilib.posteriors.Conjugate() if config.method in PRIORS else gilib.Factorised(),
        prior=gilib.NealPrior(math.sqrt(config.prior_variance)),
        activation=nn.Tanh,
        generator=torch.Generator().manual_seed(1000 + config.seed),
    )
    return net, gilib.Categorical() if labels else gilib.Gaussian(0.1, learn=True)


def settings_of(config: ToyConfig) -> dict[str, Any]:
    """Return the arguments of `gilib.fit` that the method determines."""
    schedule = CosineDecay() if config.decay else None
    if config.method in PRIORS:
        rule = Bali(config.lr, config.update_rate, PRIORS[config.method], schedule)
        return {"rule": rule, "estimator": "draw"}
    settings: dict[str, Any] = {"rule": gilib.Adam(config.lr, schedule=schedule)}
    settings |= {"estimator": "pointwise", "kl_weight": SteppedTempering(0, last=config.kl_weight)}
    return settings


def _draws(config: ToyConfig, net: gilib.Network, likelihood: gilib.likelihoods.Likelihood, x: Tensor) -> Any:
    device = next(net.buffers()).device if config.method in PRIORS else next(net.parameters()).device
    generator = torch.Generator(device).manual_seed(2000 + config.seed)
    return gilib.predict(net, likelihood, x.to(device), SAMPLES, generator=generator)


def _regression(
    config: ToyConfig, problem: SyntheticProblem, net: gilib.Network, likelihood: gilib.likelihoods.Likelihood
) -> dict[str, Any]:
    prediction = _draws(config, net, likelihood, problem.grid)
    mean, spread = prediction.mean.cpu(), prediction.function_sd.cpu()
    assert problem.true_function is not None
    near, error = problem.supported, (mean - problem.true_function).square()[:, 0]
    fitted = _draws(config, net, likelihood, problem.x)
    return {
        "mean": rounded(mean, 4),
        "function_sd": rounded(spread, 4),
        "sd": rounded(prediction.sd, 4),
        "truth": rounded(problem.true_function, 4),
        "train_rmse": significant(float(gilib.metrics.rmse(fitted.mean.cpu(), problem.y))),
        "train_log_likelihood": significant(float(fitted.log_prob(problem.y.to(fitted.mean)).mean())),
        "error_near": significant(float(error[near].mean().sqrt())),
        "error_away": significant(float(error[~near].mean().sqrt())),
        "sd_near": significant(float(spread[near].mean())),
        "sd_away": significant(float(spread[~near].mean())),
    }


def _classification(
    config: ToyConfig, problem: SyntheticProblem, net: gilib.Network, likelihood: gilib.likelihoods.Likelihood
) -> dict[str, Any]:
    logits = _draws(config, net, likelihood, problem.grid).log_probabilities.exp()[..., 1].cpu()  # [S, P]
    fitted = _draws(config, net, likelihood, problem.x)
    near, spread = problem.supported, logits.std(0)
    labels = problem.y.to(fitted.mean.device)
    return {
        "probability": rounded(logits.mean(0), 4),
        "probability_sd": rounded(spread, 4),
        "train_accuracy": significant(float(gilib.metrics.accuracy(fitted.mean, labels))),
        "train_log_likelihood": significant(float(fitted.log_prob(labels).mean())),
        "sd_near": significant(float(spread[near].mean())),
        "sd_away": significant(float(spread[~near].mean())),
    }


EXPERIMENTS = {
    "bali_toy": Experiment(
        "Figs. 1 and 4 to 6: BALI and Bayes by Backprop on synthetic problems",
        ToyConfig,
        grid,
        one_by_one(run),
    ),
}
