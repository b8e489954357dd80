"""Gaussian noise with a variance for every target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gilib.arguments import Scale
from gilib.config import ConfigDict
from gilib.draws import Moments
from gilib.likelihoods.base import LOG_2PI
from gilib.likelihoods.gaussian import GaussianNoise
from gilib.validation import as_replicas, check_own_targets

if TYPE_CHECKING:
    from gilib.draws import Drawn


class NoisePerTarget(GaussianNoise):
    """Base class of Gaussian likelihoods with a noise variance for every target.

    Args:
        noise_variance: a list of σ_o², one for every target, in their squared units; initial values if
            learned.
        learn: whether they are learned, as point estimates.
        replicas: shape of the replica axes, if every replica has its own.

    The parameter is stored in float64, like that of `gilib.Gaussian`.
    """

    def __init__(self, noise_variance: Sequence[Scale], learn: bool = False, replicas: tuple[int, ...] = ()):
        """Create the parameter."""
        super().__init__()
        if not len(noise_variance):
            raise ValueError("noise_variance must be a list with a variance for every output, got none")
        self.start = [float(value) for value in noise_variance]
        self.learn, self.replicas = learn, as_replicas(replicas)
        start = torch.tensor(self.start, dtype=torch.float64).log().expand(*self.replicas, -1)
        self.log_variance = nn.Parameter(start.clone(), requires_grad=learn)  # [R, O]

    @property
    def noise_variance(self) -> Tensor:
        """σ_o², `[R, O]`, in squared units of the targets."""
        return self.log_variance.exp()

    @torch.no_grad()
    def scale_noise(self, factor: Tensor) -> None:
        """Multiply σ_o² by factors, `[R, O]`, if they are learned."""
        if self.log_variance.requires_grad:
            self.log_variance.add_(factor.to(self.log_variance).log())

    def config(self) -> ConfigDict:
        """Return the settings; learned values are part of the state."""
        return {"noise_variance": self.start, "learn": self.learn, "replicas": list(self.replicas)}


class PerOutputGaussian(NoisePerTarget):
    """Gaussian noise with a variance for every output, y_o ~ N(f_o, σ_o²), independent over outputs.

    Args:
        noise_variance: a list of σ_o², one for every output, in squared units of the targets; initial values
            if learned.
        learn: whether they are learned, as point estimates.
        replicas: shape of the replica axes, if every replica has its own.

    The parameter is stored in float64, like that of `gilib.Gaussian`.

    >>> likelihood = PerOutputGaussian([0.25, 4.0])
    >>> likelihood.log_prob(torch.zeros(3, 5, 2), torch.zeros(5, 2)).shape
    torch.Size([3, 5])
    """

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return Σ_o log N(y_no; f_no, σ_o²) for every point, `[S, R, N]`, nats."""
        self.check_targets(targets, *outputs.shape[-2:])
        check_own_targets(targets.shape[:-2], outputs.shape[1:-2])
        self.check_replicas(outputs)
        log_variance = self.log_variance.to(outputs.dtype)[..., None, :]  # [R, 1, O]
        squares = (outputs - targets).square() * (-log_variance).exp()
        return -0.5 * (squares + log_variance + LOG_2PI).sum(-1)

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """Return Σ_o [log N(y_no; E f_no, σ_o²) - ½ V f_no / σ_o²] for every point, `[S, R, N]`, nats."""
        mean, variance = functions.marginals(x)
        log_prob = self.log_prob(mean, targets)
        if variance is None:
            return log_prob
        precision = (-self.log_variance).exp().to(mean.dtype)[..., None, :]
        return log_prob - 0.5 * (precision * variance).sum(-1)

    def infers_noise(self, replicas: tuple[int, ...]) -> bool:
        """Raise ValueError, because rules infer a full covariance, which this likelihood cannot store."""
        raise ValueError(
            f"a covariance of the noise is inferred here: use CorrelatedGaussian({len(self.start)}, "
            "learn=True), whose diagonal holds the variance of each output"
        )

    def target_moments(self, outputs: Tensor) -> Moments:
        """Return the outputs as means, and every replica's σ_o²."""
        self._check_width(outputs.shape[-1])
        self.check_replicas(outputs)
        noise = self.noise_variance.to(outputs)[..., None, :]
        return Moments(outputs, noise.expand(1, *outputs.shape[1:-2], 1, outputs.shape[-1]))

    def check_targets(self, targets: Tensor, num_points: int, outputs: int) -> None:
        """Raise unless targets are floating-point numbers `[N, O]`, and the network has O outputs."""
        if targets.is_floating_point():
            self._check_width(outputs)
        super().check_targets(targets, num_points, outputs)

    def _check_width(self, outputs: int) -> None:
        if outputs != len(self.start):
            raise ValueError(
                f"this likelihood has a noise for each of {len(self.start)} outputs, "
                f"but the network has {outputs} outputs"
            )
