"""Compositional uncertainty: deep Gaussian processes on data from a deep Gaussian process.

Ober & Aitchison (2021), App. J: Fig. A3. The data are a hundred points of f_2(f_1(x)) plus noise, where both
functions are draws of a one-dimensional Gaussian process with an RBF kernel. The models have two layers of
width one. The paper states no more: ranges of the inputs, lengthscale, variance, noise, inducing points and
training are our choices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import gilib
from experiments.ober2021.dgp_toy_measures import measure
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.data import sha256_of
from gilib.layers import GP, Layer, Residual
from gilib.linalg import cholesky
from gilib.posteriors import InducingPosterior

METHODS = ("gi", "li", "dsvi")
POINTS, TEST_POINTS = 100, 50
EDGE, FAR = 3.0, 5.0  # training inputs lie within ±EDGE; inputs out of range between EDGE and FAR
LENGTHSCALE = VARIANCE = 1.0
NOISE_VARIANCE = 0.01
NUGGET = 1e-8  # on the diagonal of the kernel matrix from which functions are drawn


@dataclass(frozen=True)
class DgpToyConfig:
    """One training.

    Attributes:
        method: "gi", "li" or "dsvi".
        draw: seed of the data, including the functions.
        seed: seed of initial values and noise.
        mean: mean function of both layers, "zero" or "identity".
        learn: whether kernels and noise are learned, from the true ones, or fixed at these.
        num_inducing: M.
        steps: gradient steps on all points.
        num_samples: draws per step.
        lr: learning rate.
        hidden_scale: for "dsvi", L starts at this times the identity in the first layer; at 1 in the last.
        samples: draws for all measurements.
        scale: "smoke", "reduced" or "paper".
    """

    method: str
    draw: int
    seed: int = 0
    mean: str = "zero"
    learn: bool = True
    num_inducing: int = 25
    steps: int = 20_000
    num_samples: int = 10
    lr: float = 1e-2
    hidden_scale: float = 0.1
    samples: int = 1000
    scale: str = "paper"


def figure_a3(scale: str) -> Iterator[DgpToyConfig]:
    """Yield all methods on several data sets and seeds, first with true kernels and noise, then learned ones.

    One draw per step instead of ten would halve the work, but is far too noisy for global inducing points
    here.
    """
    draws, known, learned, steps, samples = {
        "smoke": (1, 1, 1, 20, 20),
        "reduced": (3, 2, 3, 2000, 1000),
        "paper": (10, 5, 5, 20_000, 1000),
    }[scale]
    for mean in ("zero", "identity") if scale == "paper" else ("zero",):
        for learn, seeds in ((False, known), (True, learned)):
            for seed, draw, method in itertools.product(range(seeds), range(draws), METHODS):
                yield DgpToyConfig(method, draw, seed, mean, learn, steps=steps, samples=samples, scale=scale)


@dataclass(frozen=True, eq=False)
class Composed:
    """One draw of the data: y = f_2(f_1(x)) + ε.

    Attributes:
        x: inputs, uniform from -3 to 3, `[100, 1]`, float64.
        y: targets, `[100, 1]`.
        inside: further inputs from the same range, `[50, 1]`, and their targets.
        outside: inputs between 3 and 5 on either side, `[50, 1]`, and their targets.
        hidden: f_1(x), `[100, 1]`.
    """

    x: Tensor
    y: Tensor
    inside: tuple[Tensor, Tensor]
    outside: tuple[Tensor, Tensor]
    hidden: Tensor


def composed(draw: int) -> Composed:
    """Draw both functions, and the data.

    >>> problem = composed(0)
    >>> problem.x.shape, problem.outside[1].shape, bool(problem.outside[0].abs().min() >= 3)
    (torch.Size([100, 1]), torch.Size([50, 1]), True)
    """
    generator = torch.Generator().manual_seed(draw)
    uniform = torch.rand(POINTS + 2 * TEST_POINTS, 1, generator=generator, dtype=torch.float64)
    x = EDGE * (2 * uniform - 1)
    side = 2 * uniform[-TEST_POINTS:] - 1
    x[-TEST_POINTS:] = side.sign() * EDGE + side * (FAR - EDGE)
    hidden = _function(x, generator)
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    y = _function(hidden, generator) + math.sqrt(NOISE_VARIANCE) * noise
    parts = (POINTS, TEST_POINTS, TEST_POINTS)
    (x, inside, outside), (y, near, far) = x.split(parts), y.split(parts)
    return Composed(x, y, (inside, near), (outside, far), hidden[:POINTS])


def _function(x: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a function of the prior at points `[N, 1]`."""
    squares = ((x - x.mT) / LENGTHSCALE).square()
    identity = torch.eye(len(x), dtype=x.dtype)
    gram = VARIANCE * (torch.exp(-0.5 * squares) + NUGGET * identity)
    return cholesky(gram, "the kernel matrix") @ torch.randn(x.shape, generator=generator, dtype=x.dtype)


def run(config: DgpToyConfig, job: Job) -> Record:
    """Train one configuration and measure it.

    Returns:
        The metrics of `dgp_toy_measures.measure`, and the thinned training curve, in total nats, not per
        point.
    """
    problem = composed(config.draw)
    net, likelihood = build(config, problem)
    net, likelihood = net.to(job.device), likelihood.to(job.device)
    x, y = (part.to(job.device, torch.float32) for part in (problem.x, problem.y))
    history = gilib.fit(
        net,
        likelihood,
        x,
        y,
        steps=config.steps,
        num_samples=config.num_samples,
        rule=gilib.Adam(config.lr),
        seed=config.seed,
        estimator="pointwise",
        **job.fit_options(),
    )
    source = torch.Generator(job.device).manual_seed(2000 + config.seed)
    tests = {"inside": problem.inside, "outside": problem.outside}
    measured = measure(net, likelihood, (x, y), tests, config.samples, source)
    curve = POINTS * history.elbo[:: max(1, config.steps // 50)]
    return {
        "data": {"name": "two-layer Gaussian process", "sha256": sha256_of(problem.x, problem.y)},
        "metrics": measured,
        "curve": [round(value, 3) for value in curve.tolist()],
    }


def build(config: DgpToyConfig, problem: Composed) -> tuple[gilib.Network, gilib.Gaussian]:
    """Build two layers of width one, initialised as in App. O, and the likelihood."""
    generator = torch.Generator().manual_seed(1000 + config.seed)
    chosen = torch.randperm(POINTS, generator=generator)[: config.num_inducing]
    points, targets = (part[chosen].float() for part in (problem.x, problem.y))
    is_global = config.method == "gi"
    layers: list[Layer] = []
    for last in (False, True):
        kernel = gilib.kernels.RBF(LENGTHSCALE, VARIANCE)
        own = points if config.method == "dsvi" else None
        process = GP(1, 1, kernel, _posterior(config, last), inducing_inputs=own)
        layers.append(Residual([process]) if config.mean == "identity" else process)
    net = gilib.Network(
        points if is_global else None,
        layers,
        pseudo_outputs=targets if is_global and config.mean == "zero" else None,
        generator=generator,
    )
    if not config.learn:
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(".log." not in name)
    return net, gilib.Gaussian(NOISE_VARIANCE, learn=config.learn)


def _posterior(config: DgpToyConfig, last: bool) -> InducingPosterior:
    if config.method == "dsvi":
        return gilib.FreeGaussian(config.num_inducing, initial_scale=1.0 if last else config.hidden_scale)
    if config.method == "li":
        return gilib.LocalInducing(config.num_inducing, precision="full", log_precision=0.0)
    return gilib.GlobalInducing(precision="full", log_precision=0.0 if last else -4.0)


EXPERIMENTS = {
    "dgp_toy": Experiment(
        "Fig. A3: compositional uncertainty of two-layer Gaussian processes",
        DgpToyConfig,
        figure_a3,
        one_by_one(run),
    )
}
