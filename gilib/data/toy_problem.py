"""The cubic with a gap: a one-dimensional problem that shows a method's uncertainty between data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.arguments import FloatingType, Positive, checked
from gilib.data.dataset import sha256_of
from gilib.data.normalisation import Normalisation


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
