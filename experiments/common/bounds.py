"""Measure the ELBO of a trained network in batches of points."""

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
    """Return S estimates of the ELBO per training point, `[S, R]` in float64.

    Every batch of points has new draws. The mean of the batches' estimates, weighted by batch size, is
    unbiased.

    Args:
        net: the network.
        likelihood: likelihood of the targets.
        x: all training inputs, `[N, D]` or `[R, N, D]`.
        y: all targets.
        samples: S.
        batch: number of points that are evaluated at once.
        source: source of the draws.
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
