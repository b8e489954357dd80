"""Measure a two-layer Gaussian process of width one: bounds, predictions, and both functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

import gilib
from experiments.common.measuring import rounded, significant
from experiments.runner.records import Record
from gilib.draws import record
from gilib.metrics import log_mean_exp

Pair = tuple[Tensor, Tensor]

GRID = torch.linspace(-5.0, 5.0, 61)[:, None]  # inputs at which functions are recorded
RANGE = 3.0  # of the training inputs, in which layers are correlated
PATHS = 4  # number of recorded functions
AT_ONCE = 100  # draws, which limits the memory of paths and of joint covariances
REPEATS = 5  # of the importance-weighted bound


@torch.no_grad()
def measure(
    net: gilib.Network,
    likelihood: gilib.Gaussian,
    data: Pair,
    tests: Mapping[str, Pair],
    samples: int,
    generator: torch.Generator,
) -> Record:
    """Measure everything.

    Args:
        net: two Gaussian processes of width one, perhaps with identity mean functions.
        likelihood: likelihood of the targets.
        data: training inputs and targets, `[N, 1]`.
        tests: further inputs and targets by name.
        samples: S, draws for each measurement.
        generator: source of the draws.

    Returns:
        ELBO (mean and standard error over S estimates) and importance-weighted bound (from S joint draws,
        mean and standard error over five) in nats; mean log density of the tests; noise variance,
        lengthscales and variances of the kernels; the results of `functions`.
    """
    x, y = data
    estimate = net.estimate(samples, len(x), generator=generator)
    bounds = gilib.elbo(estimate, likelihood, x, y, num_data=len(x), reduction="none").double()
    weighted = torch.stack([_iwbo(net, likelihood, data, samples, generator) for _ in range(REPEATS)])
    logs = {name: float(p.detach().exp()) for name, p in net.named_parameters() if ".log." in name}
    draws = [net.draw(size, generator=generator) for size in _pieces(samples)]
    return {
        "elbo": significant(float(bounds.mean())),
        "elbo_stderr": significant(float(bounds.std()) / math.sqrt(samples)),
        "iwbo": significant(float(weighted.mean())),
        "iwbo_stderr": significant(float(weighted.std()) / math.sqrt(REPEATS)),
        **{
            f"log_density_{name}": _log_density(net, likelihood, test, samples, generator)
            for name, test in tests.items()
        },
        "noise_variance": significant(float(likelihood.noise_variance)),
        "lengthscales": [significant(value) for name, value in logs.items() if "lengthscale" in name],
        "kernel_variances": [significant(value) for name, value in logs.items() if "variance" in name],
        **functions(draws, x),
    }


def _iwbo(
    net: gilib.Network, likelihood: gilib.Gaussian, data: Pair, samples: int, generator: torch.Generator
) -> Tensor:
    """Return the importance-weighted bound of joint draws, in pieces of equal size."""
    parts = [
        gilib.iwbo(net.joint_draw(size, len(data[0]), generator=generator), likelihood, *data).double()
        for size in _pieces(samples)
    ]
    return log_mean_exp(torch.stack(parts))


def _pieces(samples: int) -> list[int]:
    """Split a number of draws into equal pieces.

    >>> _pieces(1000) == [100] * 10, _pieces(20), sum(_pieces(250))
    (True, [20], 250)
    """
    pieces = max(1, samples // AT_ONCE)
    if samples % pieces:
        raise ValueError(f"samples must be at most {AT_ONCE}, or a multiple of it, got {samples}")
    return [samples // pieces] * pieces


def _log_density(
    net: gilib.Network, likelihood: gilib.Gaussian, test: Pair, samples: int, generator: torch.Generator
) -> float:
    x, y = (part.to(next(net.parameters())) for part in test)
    found = gilib.predict(net, likelihood, x, samples, generator=generator)
    return significant(float(found.log_prob(y).mean()))


def functions(draws: Sequence[gilib.Draw], x: Tensor) -> Record:
    """Measure the composition and both layers' functions on grids, and their dependence.

    The grid of the second function spans the middle 99 percent of the first one's outputs at the training
    inputs.

    Args:
        draws: functions of two layers, in pieces.
        x: training inputs, `[N, 1]`.

    Returns:
        For "composition", "layer_1" and "layer_2": "mean", "sd" and a few "paths" at "grid";
        `layer_variances` at the training inputs, and `layer_correlation`, the mean absolute `correlation`
        between the first function within the training range and the second.
    """
    grid = GRID.to(x)
    at_x, at_grid = ([record(draw.function, points) for draw in draws] for points in (x, grid))
    variances = [torch.cat([each.outputs[k] for each in at_x]).var(0).mean() for k in (0, 1)]
    entering = torch.cat([each.steps[1].input for each in at_x]).flatten()
    low, high = entering.quantile(torch.tensor([0.005, 0.995]).to(x)).tolist()
    between = torch.linspace(low, high, len(GRID)).to(x)[:, None]
    first = torch.cat([each.outputs[0] for each in at_grid])
    second = torch.cat([each.steps[1].function(between) for each in at_grid])
    related = correlation(first[:, grid[:, 0].abs() <= RANGE], second)
    return {
        "layer_variances": [significant(float(value)) for value in variances],
        "layer_correlation": significant(float(related.abs().mean())),
        "composition": _described(torch.cat([each.output for each in at_grid]), grid),
        "layer_1": _described(first, grid),
        "layer_2": _described(second, between),
    }


def correlation(first: Tensor, second: Tensor) -> Tensor:
    """Return correlations `[N, K]` over S draws of two functions, `[S, N, 1]` and `[S, K, 1]`.

    Independent functions have entries of about 1/√S, with mean absolute value √(2/πS).

    >>> values = torch.tensor([[[1.0]], [[2.0]], [[4.0]]])
    >>> correlation(values, torch.cat([values, -values], 1)).round(decimals=3)
    tensor([[ 1., -1.]])
    """
    deviations = [values[..., 0] - values[..., 0].mean(0) for values in (first, second)]
    scaled = [values / values.norm(dim=0) for values in deviations]
    return scaled[0].mT @ scaled[1]


def _described(values: Tensor, grid: Tensor) -> Record:
    return {
        "grid": rounded(grid, 4),
        "mean": rounded(values.mean(0), 4),
        "sd": rounded(values.std(0), 4),
        "paths": [rounded(path, 3) for path in values[:PATHS]],
    }
