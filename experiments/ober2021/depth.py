"""Deep linear networks: the effect of depth and width on approximate posteriors.

Ober & Aitchison (2021), Sec. 3.2, Fig. 2, App. O. The data are a linear function of five inputs plus noise.
The networks have no nonlinearity and no bias, the prior is NealPrior, and the noise is known. With one layer
the model equals the one that generated the data. The paper does not state prior, bias, noise treatment and
depths: these are our choices.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import gilib
from experiments.common.methods import ends_global, posterior_of
from experiments.runner.experiment import Experiment, Job
from experiments.runner.records import Record
from gilib.data import sha256_of
from gilib.likelihoods.base import LOG_2PI
from gilib.linalg import failures_as_nan
from gilib.posteriors import Posterior
from gilib.randomness import ReplicaGenerators

INPUTS, POINTS, TEST_POINTS = 5, 1000, 100
NOISE_VARIANCE = 0.1
CURVE = 50  # recorded points of a training curve
DRAWN_AT_ONCE = 2**24  # weights, which limits the memory of the measurements

METHODS = {name: posterior_of(name) for name in ("fac", "li", "gi", "fac_gi", "li_gi", "rand_gi")}


@dataclass(frozen=True)
class DepthConfig:
    """One training; the defaults are the paper's settings, as far as it states them.

    Attributes:
        method: key of `METHODS`.
        width: width of the hidden layers.
        depth: number of layers of weights; with 1 the model is Bayesian linear regression.
        seed: seed of data, initial values and noise.
        num_inducing: M.
        steps: gradient steps on all data.
        lr: learning rate.
        num_samples: draws per step.
        elbo_samples: draws for the ELBO.
        test_samples: draws for predictions of the test points.
        scale: "smoke", "reduced" or "paper".
    """

    method: str
    width: int
    depth: int
    seed: int = 0
    num_inducing: int = 10
    steps: int = 40_000
    lr: float = 1e-2
    num_samples: int = 1
    elbo_samples: int = 500
    test_samples: int = 10
    scale: str = "paper"


def figure_2(scale: str) -> Iterator[DepthConfig]:
    """Yield all methods, widths and depths; mixtures of two methods need at least two layers."""
    steps = {"smoke": 30, "reduced": 2500, "paper": 40_000}[scale]
    widths, depths, seeds = ((5,), (1, 3), 2) if scale == "smoke" else ((5, 50, 250), (1, 2, 4, 6, 8, 10), 3)
    for width in widths:
        for depth in depths:
            for method, posterior in METHODS.items():
                if depth > 1 or isinstance(posterior, Posterior):
                    for seed in range(seeds):
                        yield DepthConfig(method, width, depth, seed, steps=steps, scale=scale)


def group_key(config: DepthConfig) -> Hashable:
    """Return the group of a configuration; different seeds are trained together."""
    return config.method, config.width, config.depth, config.steps


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """One draw of the data: x ~ N(0, Id), y = x·w + ε with w ~ N(0, Id/5) and ε ~ N(0, 0.1).

    Attributes:
        x: inputs, `[1000, 5]`, float64.
        y: targets, `[1000, 1]`.
        test_x: `[100, 5]`.
        test_y: `[100, 1]`.
    """

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor

    @property
    def log_evidence(self) -> float:
        """Log evidence of the generating model, log N(y; 0, XXᵀ/5 + 0.1 Id), in nats, summed over points."""
        x, y = summarise(self.x, self.y)
        covariance = x @ x.mT / INPUTS + NOISE_VARIANCE * torch.eye(len(x), dtype=x.dtype)
        marginal = torch.distributions.MultivariateNormal(x.new_zeros(len(x)), covariance)
        return float(marginal.log_prob(y[:, 0])) + left_out(len(self.x))


def linear_problem(seed: int) -> LinearProblem:
    """Draw the data.

    >>> problem = linear_problem(0)
    >>> problem.x.shape, problem.test_y.shape
    (torch.Size([1000, 5]), torch.Size([100, 1]))
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weights = normal(INPUTS, 1) / math.sqrt(INPUTS)
    x = normal(POINTS + TEST_POINTS, INPUTS)
    y = x @ weights + math.sqrt(NOISE_VARIANCE) * normal(POINTS + TEST_POINTS, 1)
    return LinearProblem(x[:POINTS], y[:POINTS], x[POINTS:], y[POINTS:])


def summarise(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return D + 1 points that are equivalent to all N for linear functions without bias.

    With [X y] = Q R, every xᵀw has the same squared error on the rows of R. Gaussian log-likelihoods then
    differ by the constant `left_out(N)`.

    Args:
        x: `[N, D]`, N > D.
        y: `[N, 1]`.

    Returns:
        Inputs `[D + 1, D]` and targets `[D + 1, 1]`.
    """
    triangle = torch.linalg.qr(torch.cat([x, y], -1), mode="r")[1]
    return triangle[:, :-1], triangle[:, -1:]


def left_out(points: int) -> float:
    """Return the part of the log-likelihood of `points` points that their summary lacks, in nats."""
    return -0.5 * (points - INPUTS - 1) * (LOG_2PI + math.log(NOISE_VARIANCE))


def run(configs: Sequence[DepthConfig], job: Job) -> list[Record]:
    """Train the seeds of one method, width and depth together and measure them.

    Returns:
        One record for each: ELBO (mean and standard error over draws) and evidence of the generating model,
        per training point; test log-likelihood per point; thinned training curve of the ELBO per point; nats.
    """
    config, seeds = configs[0], [config.seed for config in configs]
    problems = [linear_problem(seed) for seed in seeds]
    net = build(configs, problems).to(job.device)
    likelihood = gilib.Gaussian(NOISE_VARIANCE).to(job.device)
    x, y = stack((summarise(p.x, p.y) for p in problems), job.device)
    test_x, test_y = stack(((p.test_x, p.test_y) for p in problems), job.device)
    history = gilib.fit(
        net,
        likelihood,
        x,
        y,
        steps=config.steps,
        num_samples=config.num_samples,
        rule=gilib.Adam(config.lr),
        seed=seeds,
        on_divergence="freeze",
        **job.fit_options(),
    )
    bounds = measure_elbo(net, likelihood, x, y, config.elbo_samples, seeds)  # [S, R]
    tests = measure_test(net, likelihood, test_x, test_y, config.test_samples, seeds)  # [R]
    curves = per_point(history.elbo.double() * x.shape[-2])
    assert history.diverged_at is not None
    return [
        _record(problem, bounds[:, r], float(tests[r]), curves[:, r], int(history.diverged_at[r]))
        for r, problem in enumerate(problems)
    ]


def stack(pairs: Iterable[tuple[Tensor, Tensor]], device: torch.device | None = None) -> list[Tensor]:
    """Stack inputs `[R, N, D]` and targets `[R, N, 1]` of R problems, in float32."""
    return [torch.stack(part).to(device, torch.float32) for part in zip(*pairs, strict=True)]


def build(configs: Sequence[DepthConfig], problems: Sequence[LinearProblem]) -> gilib.Network:
    """Build one network with a replica for each configuration, initialised as it would be alone.

    Inducing inputs, and the pseudo-outputs of a global last layer, start at the first M training points
    (App. O).
    """
    config = configs[0]
    first = slice(config.num_inducing)
    inputs, targets = stack((problem.x[first], problem.y[first]) for problem in problems)
    return gilib.models.mlp(
        INPUTS,
        (config.width,) * (config.depth - 1),
        1,
        posterior=METHODS[config.method],
        prior=gilib.NealPrior(),
        inducing_points=inputs,
        pseudo_outputs=targets if ends_global(config.method) else None,
        activation=None,
        bias=False,
        replicas=(len(configs),),
        generator=ReplicaGenerators([1000 + c.seed for c in configs]),
    )


@torch.no_grad()
def measure_elbo(
    net: gilib.Network, likelihood: gilib.Gaussian, x: Tensor, y: Tensor, samples: int, seeds: Sequence[int]
) -> Tensor:
    """Return the ELBO of every draw per training point, `[S, R]` nats, from summaries `[R, D + 1, ...]`."""
    source = ReplicaGenerators([2000 + seed for seed in seeds], x.device)
    at_once = max(1, DRAWN_AT_ONCE // (net.noise_size * len(seeds)))
    bounds = []
    for start in range(0, samples, at_once):
        with failures_as_nan():
            draw = net.draw(min(at_once, samples - start), generator=source)
        total = gilib.elbo(draw, likelihood, x, y, num_data=x.shape[-2], reduction="none")
        bounds.append(total.double())
    return per_point(torch.cat(bounds).cpu())


def per_point(summary_bounds: Tensor) -> Tensor:
    """Convert ELBOs of summaries to ELBOs of all training points, per point."""
    return (summary_bounds + left_out(POINTS)) / POINTS


@torch.no_grad()
def measure_test(
    net: gilib.Network, likelihood: gilib.Gaussian, x: Tensor, y: Tensor, samples: int, seeds: Sequence[int]
) -> Tensor:
    """Return the log-likelihood of test points `[R, N, ...]` per point, `[R]` nats."""
    with failures_as_nan():
        draw = net.draw(samples, generator=ReplicaGenerators([3000 + seed for seed in seeds], x.device))
    return gilib.metrics.test_log_likelihood(likelihood.log_prob(draw(x), y)).cpu()


def _record(problem: LinearProblem, bounds: Tensor, test: float, curve: Tensor, diverged_at: int) -> Record:
    data = {"name": "linear", "sha256": sha256_of(problem.x, problem.y)}
    if diverged_at >= 0:
        return {"data": data, "metrics": {}, "diverged_at": diverged_at}
    metrics = {
        "elbo": float(bounds.mean()),
        "elbo_stderr": float(bounds.std() / math.sqrt(len(bounds))),
        "evidence": problem.log_evidence / POINTS,
        "test_log_likelihood": test,
    }
    thinned = curve[:: max(1, len(curve) // CURVE)].tolist()
    return {
        "data": data,
        "metrics": {name: round(value, 6) for name, value in metrics.items()},
        "curve": [round(value, 4) for value in thinned],
    }


EXPERIMENTS = {
    "depth": Experiment("Fig. 2: deep linear networks", DepthConfig, figure_2, run, group=group_key)
}
