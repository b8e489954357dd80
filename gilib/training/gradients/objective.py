"""What training maximises: a bound, as a pure function of a minibatch and its noise."""

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
    """What the layers of a network would be trained on."""
    return "pointwise" if net.layers.prefers_estimate else "draw"


@dataclass(frozen=True)
class Batch:
    """What one step sees.

    Attributes:
        step: counted from 0. A rule that is recorded reads it in `RunningRule.prepare` alone.
        x: this process's share of the minibatch, `[B, ...]` or `[R, B, ...]`.
        y: its targets.
        noise: standard normals of every sample, the same on all processes, and of this process's points.
        kl_weight: tempering of this step.
        fraction: the share's part of the minibatch's points, 1 for one process.
    """

    step: int
    x: Tensor
    y: Tensor
    noise: Noise
    kl_weight: float | Tensor = 1.0
    fraction: float = 1.0


@dataclass(frozen=True)
class Objective:
    """The (tempered) ELBO per data point, `[R]`, with the log density of kernels' lengthscales a priori.

    Attributes:
        net: draws functions.
        likelihood: of the targets.
        num_data: N, the size of the training set.
        num_samples: S, draws a step.
        estimator: "draw" or "pointwise".
        arithmetic: of the data's pass, see `gilib.training.Speed`.
        device: of the data.
        freeze: whether a factorisation that fails spoils its own replica only.
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
        """Those whose lengthscales have a prior."""
        return kernels_with_prior(self.net)

    @property
    def mode(self) -> type[Draw | Estimate]:
        """Of what the network samples."""
        return Estimate if self.estimator == "pointwise" else Draw

    def noise(self, num_points: int, source: GeneratorLike) -> Noise:
        """The base noise of one step at so many points."""
        return self.net.layers.noise_for(self.mode, self.num_samples, num_points, source)

    def __call__(self, batch: Batch) -> Tensor:
        """What the points of the batch add to the bound, `[R]`; differentiable."""
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
        """The functions of one step."""
        return self.net.sample(noise, self.mode)

    def with_gradients(self, batch: Batch, parameters: Sequence[nn.Parameter]) -> tuple[Tensor, list[Tensor]]:
        """The bound, detached, and the gradients of minus its sum over the replicas, to be descended."""
        bound = self(batch)
        gradients = torch.autograd.grad(-bound.sum(), parameters, materialize_grads=True)
        return bound.detach(), list(gradients)
