"""The ELBO of a trained network, measured in batches of points."""

from __future__ import annotations

import torch
from torch import Tensor

import gilib
from gilib.likelihoods import Likelihood
from gilib.randomness import GeneratorLike


@torch.no_grad()
def sampled_bounds(
    net: gilib.Network,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    samples: int,
    batch: int,
    source: GeneratorLike,
) -> Tensor:
    """Draws of the ELBO per training point, `[S, R]` in float64.

    Points are taken in batches, with new draws for each: the mean of the batches' estimates, weighted by
    their sizes, is unbiased.

    Args:
        net: estimates.
        likelihood: of the targets.
        x: all training inputs, `[N, D]` or `[R, N, D]`.
        y: their targets.
        samples: S.
        batch: points that are evaluated at once.
        source: of the draws.
    """
    points, axis = x.shape[-2], -2 if y.is_floating_point() else -1
    bounds = torch.zeros(samples, *net.replicas, dtype=torch.float64, device=x.device)
    for inputs, targets in zip(x.split(batch, -2), y.split(batch, axis), strict=True):
        size = inputs.shape[-2]
        estimate = net.estimate(samples, size, generator=source)
        found = gilib.elbo(
            estimate, likelihood, inputs, targets, num_data=points, reduction="none", per_point=True
        )
        bounds += size / points * found.double()
    return bounds
