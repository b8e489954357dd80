"""The objective of training: a bound, as a pure function of a minibatch and its noise."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from gilib.draws import Draw, Drawn, Estimate
from gilib.kernels.modules import BasicKernel, kernels_with_prior
from gilib.likelihoods import Likelihood
from gilib.linalg import failures_as_nan
from gilib.network import Network
from gilib.objectives import estimated_bound
from gilib.randomness import GeneratorLike, Noise
from gilib.training.gradients.speed import evaluated_in

ESTIMATORS = ("draw", "pointwise")


def preferred_estimator(net: Network) -> str:
    """Return the estimator that the layers of a network prefer for training."""
    return "pointwise" if net.layers.prefers_estimate else "draw"


@dataclass(frozen=True)
class Batch:
    """The data and the noise of one step.

    Attributes:
        step: number of the step, counted from 0.
        x: this process's share of the minibatch, `[B, ...]` or `[R, B, ...]`.
        y: its targets.
        noise: standard normals of the draws, which all processes share, and of this process's points.
        kl_weight: weight of the Kullback-Leibler term at this step.
        fraction: this process's share of the points of the minibatch; 1 for a single process.
    """

    step: int
    x: Tensor
    y: Tensor
    noise: Noise
    kl_weight: float | Tensor = 1.0
    fraction: float = 1.0


@dataclass(frozen=True)
class Objective:
    """The (tempered) ELBO per data point, `[R]`, plus the log prior density of kernels' lengthscales.

    Attributes:
        net: the network whose functions are drawn.
        likelihood: the likelihood of the targets.
        num_data: N, the size of the training set.
        num_samples: S, the number of draws a step.
        estimator: "draw" or "pointwise".
        arithmetic: arithmetic at the data, see `gilib.training.Speed`.
        device: device of the data.
        freeze: whether a failed factorisation gives NaN in its own replica only, and no error.
    """

    net: Network
    likelihood: Likelihood
    num_data: int
    num_samples: int
    estimator: str
    arithmetic: str
    device: torch.device
    freeze: bool

    @cached_property
    def kernels(self) -> list[BasicKernel]:
        """The kernels whose lengthscales have a prior."""
        return kernels_with_prior(self.net)

    @property
    def mode(self) -> type[Draw | Estimate]:
        """The class of a sample of the network, Estimate if points are sampled one by one, else Draw."""
        return Estimate if self.estimator == "pointwise" else Draw

    def noise(self, num_points: int, source: GeneratorLike) -> Noise:
        """Draw the standard normals of one step at `num_points` points."""
        return self.net.layers.noise_for(self.mode, self.num_samples, num_points, source)

    def __call__(self, batch: Batch) -> Tensor:
        """Return the batch's estimate of the bound, `[R]`, differentiable; a share gives its part of it."""
        with failures_as_nan() if self.freeze else nullcontext():
            draw = evaluated_in(self.drawn(batch.noise), self.arithmetic, self.device)
            draws = estimated_bound(
                draw, self.likelihood, batch.x, batch.y, self.num_data, batch.kl_weight
            )  # [S, R]
        bound = (draws / self.num_data).mean(0)
        for kernel in self.kernels:
            bound = bound + (kernel.log_prior() / self.num_data).to(bound)
        return bound if batch.fraction == 1.0 else batch.fraction * bound

    def drawn(self, noise: Noise) -> Drawn:
        """Sample the functions of one step."""
        return self.net.sample(noise, self.mode)

    def with_gradients(self, batch: Batch, parameters: Sequence[nn.Parameter]) -> tuple[Tensor, list[Tensor]]:
        """Return the bound, detached, and the gradients of minus its sum over replicas."""
        bound = self(batch)
        gradients = torch.autograd.grad(-bound.sum(), parameters, materialize_grads=True)
        return bound.detach(), list(gradients)
