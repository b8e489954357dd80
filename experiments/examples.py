"""Data of the book's examples: a cubic with a gap, which shows uncertainty between data, and a series."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import torch
from torch import Tensor

from experiments.labelled import KEPT
from gilib.arguments import FloatingType, Positive, checked
from gilib.data import Dataset, Normalisation, sha256_of
from gilib.data.loading import numbers, shipped, verified

__all__ = ["ToyProblem", "load_co2", "toy"]

CO2_SHA256 = "58ea31bc59d7b69342444f970307ffdc25960bf5eb8f22d5cbf79075b186f5ad"


@dataclass(frozen=True, eq=False)
class ToyProblem:
    """One draw of the toy problem.

    Attributes:
        x: inputs, `[N, 1]`, normalised if `toy` was called with `normalise=True`.
        y: targets, `[N, 1]`, normalised if the inputs are.
        x_raw: inputs, `[N, 1]`, float64, original units.
        y_raw: targets, `[N, 1]`, float64, original units.
        normalisation: map from original units to the units of `x` and `y`.
        noise_variance: variance of the true noise in the units of `y`: `noise_sd**2 / y_std**2`.
        seed: seed of the draw.
        sha256: checksum of `x_raw` and `y_raw`, see `gilib.data.sha256_of`.
    """

    x: Tensor
    y: Tensor
    x_raw: Tensor
    y_raw: Tensor
    normalisation: Normalisation
    noise_variance: float
    seed: int
    sha256: str


@checked
def toy(
    seed: int = 0,
    num_points: int = 40,
    noise_sd: Positive = 3.0,
    normalise: bool = True,
    balanced: bool = False,
    dtype: FloatingType = torch.float32,
) -> ToyProblem:
    r"""Draw the toy problem of Ober & Aitchison (2021), Sec. 3.1: a cubic whose inputs leave a gap.

    .. math:: x \sim \mathcal U([-4, -2] \cup [2, 4]), \qquad y = x^3 + \epsilon, \qquad
              \epsilon \sim \mathcal N(0, 3^2)

    Args:
        seed: seed of the draw; equal seeds give equal data, and no global generator is touched.
        num_points: number of points N, at least 2.
        noise_sd: standard deviation of the noise, original units, positive.
        normalise: whether inputs and targets are normalised, as in the paper.
        balanced: put exactly half of the points into each interval, the left ones first; otherwise each
            point chooses its interval independently.
        dtype: dtype of `x` and `y`; they are drawn in float64.

    Raises:
        TypeError: if `dtype` is not a floating-point type.
        ValueError: if there are fewer than two points, an odd number of points with `balanced`, or if
            `noise_sd` is not positive.

    >>> problem = toy(seed=1)
    >>> problem.x.shape, bool(problem.x_raw.abs().min() >= 2)
    (torch.Size([40, 1]), True)
    """
    if num_points < 2:
        raise ValueError(f"num_points must be at least 2 to have a standard deviation, got {num_points}")
    if balanced and num_points % 2:
        raise ValueError(
            f"balanced=True puts half of the points in each interval: pass an even number, got {num_points}"
        )
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(num_points, 1, generator=generator, dtype=torch.float64)  # [N, 1]
    noise = torch.randn(num_points, 1, generator=generator, dtype=torch.float64)  # [N, 1]
    if balanced:
        right = torch.arange(num_points)[:, None] >= num_points // 2
        x_raw = torch.where(right, 2.0 + 2.0 * uniform, -4.0 + 2.0 * uniform)
    else:
        x_raw = 4.0 * uniform - 4.0 * (uniform < 0.5)
    y_raw = x_raw**3 + noise_sd * noise
    normalisation = Normalisation.fit(x_raw, y_raw) if normalise else Normalisation.identity(1, 1)
    return ToyProblem(
        x=normalisation.x(x_raw).to(dtype),
        y=normalisation.y(y_raw).to(dtype),
        x_raw=x_raw,
        y_raw=y_raw,
        normalisation=normalisation,
        noise_variance=float(noise_sd**2 / normalisation.y_std.square()),
        seed=seed,
        sha256=sha256_of(x_raw, y_raw),
    )


def load_co2() -> Dataset:
    """Monthly means of carbon dioxide in the air at Mauna Loa, Hawaii, March 1958 to December 2001.

    Means of the weekly averages of Keeling and Whorf (2004), which a checkout includes; public domain. Of
    five months there is none. The decoded arrays must have the recorded SHA-256.

    Returns:
        The data set in original units, with the middle of the month in years, `[521, 1]`, and parts per
        million, `[521, 1]`, float64, in the order of time. Who forecasts splits by time; `split` splits at
        random.

    Raises:
        ChecksumError: if the file holds other values.
        DataError: if the checkout lacks it.

    >>> series = load_co2()
    >>> series.x[0], series.y[0]
    (tensor([1958.2083], dtype=torch.float64), tensor([316.1000], dtype=torch.float64))
    """
    table = numbers(shipped(files("experiments"), "co2", KEPT[1]), *KEPT)
    years = table[:, 0] + (table[:, 1] - 0.5) / 12.0
    dataset = Dataset(
        name="co2",
        x=torch.from_numpy(years[:, None]),
        y=torch.from_numpy(table[:, 2:].copy()),
        description="the middle of a month, in years; carbon dioxide in dry air, parts per million",
        source="Keeling & Whorf (2004), Scripps Institution of Oceanography, by way of statsmodels, "
        "https://www.statsmodels.org/stable/datasets/generated/co2.html",
        licence="public domain",
        note="Monthly means are ours: of all weeks that end in a month, each with the same weight.",
    )
    return verified(dataset, CO2_SHA256, *KEPT)
