"""The synthetic problems of Kurle et al. (2024), Sec. 5.1 and App. H.1.

The paper states the numbers of points (32, 128, 128), two disconnected regions for the first problem, and the
network. The other constants are our choices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.data import Normalisation, sha256_of


@dataclass(frozen=True)
class SyntheticProblem:
    """One draw of a problem.

    Attributes:
        name: name of the problem.
        x: inputs, `[N, D]`, normalised.
        y: targets `[N, 1]`, normalised; or labels `[N]`.
        grid: inputs at which predictions are recorded, `[P, D]`, normalised.
        true_function: the true function at the grid, `[P, 1]`, normalised; None for labels.
        supported: whether each point of the grid is as close to data as data are to each other, `[P]`.
        normalisation: normalisation of inputs and targets.
        sha256: checksum of inputs and targets in original units.
    """

    name: str
    x: Tensor
    y: Tensor
    grid: Tensor
    true_function: Tensor | None
    supported: Tensor
    normalisation: Normalisation
    sha256: str


def sines(x: Tensor) -> Tensor:
    """Return the function of "sines", x + 0.3 sin 2πx + 0.3 sin 4πx."""
    return x + 0.3 * (2.0 * math.pi * x).sin() + 0.3 * (4.0 * math.pi * x).sin()


def sinc(x: Tensor) -> Tensor:
    """Return the function of "sinc", sin 3x / 3x, continuous at 0.

    >>> sinc(torch.zeros(1))
    tensor([1.])
    """
    return torch.sinc(3.0 * x / math.pi)


def load(name: str, seed: int) -> SyntheticProblem:
    """Draw a problem.

    "sines": 32 points in [0, 0.3] ∪ [0.7, 1], half in each, noise 0.02. "sinc": 128 points in [-3, 3],
    noise 0.05. "moons": 128 points on two half circles, noise 0.1.
    """
    generator = torch.Generator().manual_seed(seed)
    if name == "moons":
        return _moons(generator)
    function, points, noise, low, high = {
        "sines": (sines, 32, 0.02, -0.5, 1.5),
        "sinc": (sinc, 128, 0.05, -6.0, 6.0),
    }[name]
    x = torch.rand(points, 1, generator=generator, dtype=torch.float64)
    if name == "sines":
        x = torch.where(torch.arange(points)[:, None] < points // 2, 0.3 * x, 0.7 + 0.3 * x)
    else:
        x = 6.0 * x - 3.0
    y = function(x) + noise * torch.randn(points, 1, generator=generator, dtype=torch.float64)
    grid = torch.linspace(low, high, 121, dtype=torch.float64)[:, None]
    scale = Normalisation.fit(x, y)
    nearest = (grid - x.T).abs().min(1).values
    return SyntheticProblem(
        name,
        scale.x(x).float(),
        scale.y(y).float(),
        scale.x(grid).float(),
        scale.y(function(grid)).float(),
        nearest < 0.02 * (high - low),
        scale,
        sha256_of(x, y),
    )


def _moons(generator: torch.Generator) -> SyntheticProblem:
    angle = math.pi * torch.rand(128, generator=generator, dtype=torch.float64)
    labels = torch.arange(128) % 2
    upper = torch.stack([angle.cos(), angle.sin()], 1)
    lower = torch.stack([1.0 - angle.cos(), 0.5 - angle.sin()], 1)
    x = torch.where(labels[:, None] == 0, upper, lower)
    x = x + 0.1 * torch.randn(128, 2, generator=generator, dtype=torch.float64)
    scale = Normalisation.fit(x, torch.zeros_like(x[:, :1]))
    first = torch.linspace(-2.0, 3.0, 21, dtype=torch.float64)
    second = torch.linspace(-1.75, 2.25, 21, dtype=torch.float64)
    grid = torch.cartesian_prod(first, second)
    return SyntheticProblem(
        "moons",
        scale.x(x).float(),
        labels,
        scale.x(grid).float(),
        None,
        torch.cdist(grid, x).min(1).values < 0.2,
        scale,
        sha256_of(x, labels[:, None].double()),
    )
