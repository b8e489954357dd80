"""Time a training step of structured deep Gaussian processes, over M, L and τ.

Lindinger et al. (2020), Sec. 4.2, App. G: Figs. 4 and S7. All families of an architecture take turns in one
process, so that their ratios do not depend on the state of the machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import gilib
from experiments.common.measuring import significant
from experiments.lindinger2020.costs import operations
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.linalg.products import matmul
from gilib.models import deep_gp, structured_gp
from gilib.structured import FullyCoupled, MeanField, Pattern, StripesAndArrow

FAMILIES = {"mf": MeanField(), "star": StripesAndArrow(), "fc": FullyCoupled()}
INPUTS, TRAINING_POINTS = 8, 1000
WARM_UP = 2  # steps that are not timed
PRODUCT = 1024  # rows of the square matrices whose products measure the machine's speed


@dataclass(frozen=True)
class RuntimeConfig:
    """One architecture; the defaults are the paper's.

    Attributes:
        varied: "inducing", "depth" or "width", the curve to which the architecture belongs.
        depth: L, including the last layer.
        width: τ, the number of processes of a hidden layer.
        num_inducing: M.
        batch_size: points per step.
        num_samples: draws per step.
        repeats: number of timed steps of each method.
        scale: "smoke", "reduced" or "paper".
    """

    varied: str
    depth: int = 3
    width: int = 5
    num_inducing: int = 128
    batch_size: int = 512
    num_samples: int = 5
    repeats: int = 15
    scale: str = "reduced"


CURVES = {
    "inducing": ("num_inducing", (32, 64, 128, 256)),
    "depth": ("depth", (2, 3, 4, 5)),
    "width": ("width", (1, 2, 5, 8)),
}


def configurations(scale: str) -> Iterator[RuntimeConfig]:
    """Yield three curves through the paper's architecture."""
    for varied, (field, values) in CURVES.items():
        for value in values[:1] if scale == "smoke" else values:
            repeats = {"smoke": 1, "reduced": 15, "paper": 2000}[scale]
            yield RuntimeConfig(varied, **{field: value}, repeats=repeats, scale=scale)


def network(method: str, config: RuntimeConfig) -> gilib.Network:
    """Build the network of a family, or of "dsvi" (doubly stochastic), with perturbed parameters."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(config.num_inducing, INPUTS, generator=generator)
    if method == "dsvi":
        posterior = gilib.FreeGaussian()
        net = deep_gp(INPUTS, 1, config.depth, width=config.width, posterior=posterior, inducing_points=start)
    else:
        family = FAMILIES[method]
        net = structured_gp(INPUTS, 1, config.depth, width=config.width, family=family, inducing_points=start)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
    return net


def stepper(net: gilib.Network, config: RuntimeConfig) -> Callable[[], None]:
    """Return a function that makes a step of Adam on a minibatch."""
    device = next(net.parameters()).device
    generator = torch.Generator(device).manual_seed(1)
    x = torch.randn(config.batch_size, INPUTS, generator=generator, device=device)
    y = torch.sin(x.sum(-1, keepdim=True))
    likelihood = gilib.Gaussian(0.1, learn=True).to(device)
    optimiser = torch.optim.Adam([*net.parameters(), *likelihood.parameters()], lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        estimate = net.estimate(config.num_samples, config.batch_size, generator=generator)
        bound = gilib.elbo(estimate, likelihood, x, y, num_data=TRAINING_POINTS, per_point=True)
        (-bound).backward()
        optimiser.step()

    return step


def work(method: str, config: RuntimeConfig) -> int:
    """Return the operations of a step's products; a doubly stochastic deep GP counts as mean field."""
    widths = (*(config.width,) * (config.depth - 1), 1)
    family = FAMILIES["mf" if method == "dsvi" else method]
    pattern = Pattern(family, widths, (config.num_inducing,) * config.depth)
    return operations(pattern, config.batch_size, config.num_samples).total


def timed(methods: Sequence[str], config: RuntimeConfig, device: torch.device) -> dict[str, float]:
    """Return the median milliseconds of a step of each method; the methods take turns."""
    steps = {method: stepper(network(method, config).to(device), config) for method in methods}
    times: dict[str, list[float]] = {method: [] for method in steps}
    for repeat in range(config.repeats + WARM_UP):
        for method, step in steps.items():
            begin = now(device)
            step()
            if repeat >= WARM_UP:
                times[method].append(1e3 * (now(device) - begin))
    return {method: statistics.median(values) for method, values in times.items()}


def now(device: torch.device) -> float:
    """Return the time in seconds, after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def rate(device: torch.device) -> float:
    """Return the GFLOP/s of large float32 products, the best of five, as steps compute them."""
    matrix: Tensor = torch.randn(PRODUCT, PRODUCT, device=device)
    seconds = []
    for _ in range(6):
        begin = now(device)
        matmul(matrix, matrix)
        seconds.append(now(device) - begin)
    return 2 * PRODUCT**3 / min(seconds[1:]) / 1e9


def run(config: RuntimeConfig, job: Job) -> Record:
    """Time all families of one architecture.

    Returns:
        A record: milliseconds and GFLOP of a step of each family, the rate of large products, and threads.
    """
    metrics = {"product_rate": significant(rate(job.device)), "threads": torch.get_num_threads()}
    times = timed(("dsvi", *FAMILIES), config, job.device)
    for method, milliseconds in times.items():
        metrics[f"{method}_ms"] = significant(milliseconds)
        metrics[f"{method}_gflop"] = significant(work(method, config) / 1e9)
    return {"data": None, "metrics": metrics, "curve": []}


EXPERIMENTS = {
    "structured_runtime": Experiment(
        "Figures 4 and S7: what a step of structured deep GPs costs over M, L and τ",
        RuntimeConfig,
        configurations,
        one_by_one(run),
    ),
}
