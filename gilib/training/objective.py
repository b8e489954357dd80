"""What training maximises: a bound, as a pure function of a minibatch and its noise."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gilib.likelihoods import Likelihood
from gilib.linalg import failures_as_nan
from gilib.network import Network
from gilib.objectives import elbo
from gilib.randomness import Source
from gilib.training.speed import evaluated_in

Noise = tuple[Any, ...]  # standard normals [S, R, P]; of an estimator that samples every point, their source


@dataclass(frozen=True)
class Batch:
    """What one step sees.

    Attributes:
        step: counted from 0. A rule that is recorded reads it in `RunningRule.prepare` alone.
        x: this process's share of the minibatch, `[B, ...]` or `[R, B, ...]`.
        y: its targets.
        noise: from which functions are drawn, the same on all processes.
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
    """The (tempered) ELBO per data point, `[R]`.

    Attributes:
        net: draws functions.
        likelihood: of the targets.
        num_data: N, the size of the training set.
        num_samples: S, draws a step.
        estimator: "draw" or "local_reparameterisation".
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

    def noise(self, source: Source) -> Noise:
        """The base noise of one step."""
        return (self.net.base_noise(self.num_samples, source) if self.estimator == "draw" else source,)

    def __call__(self, batch: Batch) -> Tensor:
        """What the points of the batch add to the bound, `[R]`; differentiable."""
        with failures_as_nan() if self.freeze else nullcontext():
            bound = elbo(
                evaluated_in(self._drawn(batch.noise), self.arithmetic, self.device),
                self.likelihood,
                batch.x,
                batch.y,
                num_data=self.num_data,
                per_point=True,
                kl_weight=batch.kl_weight,  # type: ignore[arg-type]
            )
        return bound if batch.fraction == 1.0 else batch.fraction * bound

    def _drawn(self, noise: Noise) -> Any:
        if self.estimator == "draw":
            return self.net.draw(noise=noise[0])
        return self.net.local_reparameterisation(self.num_samples, generator=noise[0])

    def with_gradients(self, batch: Batch, parameters: Sequence[nn.Parameter]) -> tuple[Tensor, list[Tensor]]:
        """The bound, detached, and the gradients of minus its sum over the replicas, to be descended."""
        bound = self(batch)
        gradients = torch.autograd.grad(-bound.sum(), parameters, materialize_grads=True)
        return bound.detach(), list(gradients)
