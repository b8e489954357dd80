"""Deep Gaussian processes with a structured posterior."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gilib.arguments import Count, Fraction, checked
from gilib.arithmetic import exact_products
from gilib.kernels import Kernel
from gilib.layers import FixedLinear
from gilib.models.networks import as_points
from gilib.models.processes import principal_directions
from gilib.network import Network
from gilib.randomness import GeneratorLike
from gilib.structured import Family, Process, StructuredGP


@checked
def structured_gp(
    in_features: Count,
    out_features: Count,
    depth: Count = 3,
    *,
    inducing_points: Tensor,
    width: Count = 5,
    family: Family | None = None,
    kernel: Kernel | None = None,
    mean_points: Tensor | None = None,
    replicas: tuple[int, ...] = (),
    generator: GeneratorLike | None = None,
    dtype: torch.dtype | None = None,
    jitter: Fraction = 1e-5,
    num_features: Count = 1024,
    marginalise: bool = True,
) -> Network:
    """Build a deep GP with one joint Gaussian over all inducing outputs (Lindinger et al., 2020).

    Hidden layers have linear mean functions. Where the width shrinks, they project onto principal directions;
    elsewhere they are the identity, with zeros beside it where the width grows. The last layer has mean zero.

    Args:
        in_features: D, the number of inputs.
        out_features: O, the number of outputs.
        depth: L, the number of layers, including the last one.
        inducing_points: initial inducing inputs, `[M, D]` or `[R, M, D]`; later layers start from their
            images under the mean functions.
        width: T, the number of processes in every hidden layer.
        family: `StripesAndArrow` (the default), `FullyCoupled` or `MeanField`.
        kernel: kernel of every layer; default `RBF()`.
        mean_points: points `[N, D]` that determine the principal directions of the first mean function; None:
            the inducing points.
        replicas: shape of the replica axes.
        generator: source of the initial values.
        dtype: dtype of the parameters; None: that of the inducing points.
        jitter: see `StructuredGP`.
        num_features: see `StructuredGP`.
        marginalise: see `StructuredGP`.

    >>> net = structured_gp(8, 1, inducing_points=torch.randn(20, 8))
    >>> net.estimate(10, 4)(torch.zeros(4, 8)).shape
    torch.Size([10, 4, 1])
    """
    points = as_points(inducing_points, in_features)
    mean_points = points if mean_points is None else as_points(mean_points, in_features, "mean_points")
    widths = [in_features, *[width] * (depth - 1), out_features]
    processes, start = [], points
    for inputs, outputs in zip(widths[:-1], widths[1:-1], strict=False):
        matrix = mean_matrix(inputs, outputs, mean_points)
        mean = nn.Identity() if matrix is None else FixedLinear(inputs, outputs, matrix)
        processes.append(Process(inputs, outputs, kernel, mean=mean, inducing_inputs=start))
        with exact_products():
            start = start if matrix is None else start @ matrix.to(start)
    processes.append(Process(widths[-2], out_features, kernel, inducing_inputs=start))
    settings: dict[str, Any] = {"jitter": jitter, "num_features": num_features, "marginalise": marginalise}
    return Network(
        None,
        [StructuredGP(processes, family, **settings)],
        replicas=replicas,
        generator=generator,
        dtype=points.dtype if dtype is None else dtype,
    )


def mean_matrix(inputs: int, outputs: int, points: Tensor) -> Tensor | None:
    """Return the matrix of a mean function, `[D, T]`; None for the identity."""
    if inputs == outputs:
        return None
    if inputs < outputs:
        return torch.eye(inputs, outputs, dtype=points.dtype)
    return principal_directions(inputs, outputs, points, "mean_points (or inducing points in their place)")
