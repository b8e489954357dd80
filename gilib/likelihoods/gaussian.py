"""Gaussian noise: what all Gaussian likelihoods share, one variance for all outputs, or one for each."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from gilib.arguments import Positive, Scale
from gilib.config import ConfigDict
from gilib.draws import Moments
from gilib.likelihoods.base import LOG_2PI, Likelihood, check_pairs
from gilib.likelihoods.mixtures import GaussianPrediction
from gilib.validation import as_replicas, check_scale

if TYPE_CHECKING:
    from gilib.data import Normalisation
    from gilib.draws import Drawn


class GaussianNoise(Likelihood):
    """Base class of likelihoods whose targets are independent Gaussians given the outputs of a network."""

    integrates = True
    output_axes = 1

    @abstractmethod
    def target_moments(self, outputs: Tensor) -> Moments:
        """Return means of the targets given the outputs, `[S, R, N, O]`, and variances that broadcast."""

    def distribution(self, outputs: Tensor) -> Normal:
        mean, noise = self.target_moments(outputs)
        assert noise is not None
        return Normal(mean, noise.sqrt(), validate_args=False)

    @torch.no_grad()
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        given = self.distribution(outputs)
        noise = torch.randn(given.loc.shape, generator=generator, dtype=outputs.dtype, device=outputs.device)
        return given.loc + given.scale * noise

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> GaussianPrediction:
        mean, noise = self.target_moments(outputs)
        assert noise is not None
        return gaussians(mean, noise if variance is None else noise + variance, normalisation)


def check_inferred(learned: bool, instead: str) -> None:
    """Raise ValueError unless noise that is to be inferred is learned."""
    if not learned:
        raise ValueError(
            f"the noise is inferred here, but this likelihood has it fixed: use {instead}, and leave its "
            "requires_grad as it is"
        )


def gaussians(mean: Tensor, variance: Tensor, normalisation: Normalisation | None) -> GaussianPrediction:
    """Return an equal mixture of Gaussians in original units: then in float64, for large offsets."""
    sd = variance.sqrt()
    if normalisation is None:
        return GaussianPrediction(mean, sd)
    return GaussianPrediction(normalisation.invert_y(mean.double()), normalisation.scale_y(sd.double()))


class Gaussian(GaussianNoise):
    """Gaussian noise with one variance for all outputs, y ~ N(f, σ²).

    Args:
        noise_variance: σ², or its initial value if it is learned, in squared units of the targets; 0.1 is a
            good start for normalised targets.
        learn: whether σ² is learned, as a point estimate; where it is unknown, say True.
        scale: the stored parameter is log σ² / scale, in float64. The paper's UCI experiments have 10 (Ober &
            Aitchison, 2021, App. K.1).
        replicas: shape of the replica axes, if every replica has its own noise.

    >>> likelihood = Gaussian(noise_variance=0.25)
    >>> likelihood.log_prob(torch.zeros(3, 2, 1), torch.zeros(2, 1)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        noise_variance: Annotated[float, _check_single] = 1.0,
        learn: bool = False,
        scale: Positive = 1.0,
        replicas: tuple[int, ...] = (),
    ):
        super().__init__()
        self.learn, self.scale = learn, scale
        self.replicas = as_replicas(replicas)
        start = torch.full(self.replicas, math.log(noise_variance) / scale, dtype=torch.float64)
        self.scaled_log_variance = nn.Parameter(start, requires_grad=learn)

    @property
    def log_variance(self) -> Tensor:
        """The logarithm of σ², `[R]`."""
        return self.scale * self.scaled_log_variance

    @property
    def noise_variance(self) -> Tensor:
        """σ², `[R]`, in squared units of the targets."""
        return self.log_variance.exp()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return Σ_o log N(y_no; f_no, σ²) for every point, `[S, R, N]`, nats."""
        self.check_outputs(outputs)
        check_pairs(targets, outputs)
        log_variance = self.log_variance.to(outputs.dtype)[..., None]
        squares = (outputs - targets).square().sum(-1)
        constant = outputs.shape[-1] * (log_variance + LOG_2PI)
        return -0.5 * torch.addcmul(constant, squares, (-log_variance).exp())

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """Return Σ_o [log N(y_no; E f_no, σ²) - ½ V f_no / σ²], `[S, R, N]`, nats (Hensman et al., 2013)."""
        mean, variance = functions.marginals(x)
        log_prob = self.log_prob(mean, targets)
        if variance is None:
            return log_prob
        precision = (-self.log_variance).exp().to(mean.dtype)[..., None]
        return log_prob - 0.5 * precision * variance.sum(-1)

    def target_moments(self, outputs: Tensor) -> Moments:
        self.check_outputs(outputs)
        noise = self.noise_variance.to(outputs)[..., None, None]
        return Moments(outputs, noise.expand(1, *outputs.shape[1:-2], 1, outputs.shape[-1]))

    def infers_noise(self, replicas: tuple[int, ...]) -> bool:
        check_inferred(self.learn and self.scaled_log_variance.requires_grad, "Gaussian(learn=True)")
        if self.replicas != replicas:
            raise ValueError(
                f"every replica infers its own noise: use Gaussian(learn=True, replicas={replicas}), "
                f"got replicas={self.replicas}"
            )
        return True

    @torch.no_grad()
    def set_noise(self, covariance: Tensor) -> None:
        """Set σ² to tr Σ / O, which minimises KL(N(f, Σ) ‖ N(f, σ² Id))."""
        variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1).to(self.scaled_log_variance)
        self.scaled_log_variance.copy_(variance.log() / self.scale)

    @torch.no_grad()
    def scale_noise(self, factor: Tensor) -> None:
        """Multiply σ² by a factor, `[R]`, if it is learned."""
        if self.scaled_log_variance.requires_grad:
            self.scaled_log_variance.add_(factor.to(self.scaled_log_variance).log(), alpha=1.0 / self.scale)


class NoisePerTarget(GaussianNoise):
    """Base class of Gaussian likelihoods with a noise variance for every target; see `PerOutputGaussian`."""

    def __init__(self, noise_variance: Sequence[Scale], learn: bool = False, replicas: tuple[int, ...] = ()):
        super().__init__()
        if not len(noise_variance):
            raise ValueError("noise_variance must be a list with a variance for every output, got none")
        self.start = [float(value) for value in noise_variance]
        self.learn, self.replicas, self.num_outputs = learn, as_replicas(replicas), len(self.start)
        start = torch.tensor(self.start, dtype=torch.float64).log().expand(*self.replicas, -1)
        self.log_variance = nn.Parameter(start.clone(), requires_grad=learn)  # [R, O]

    @property
    def noise_variance(self) -> Tensor:
        """σ_o², `[R, O]`, in squared units of the targets."""
        return self.log_variance.exp()

    def _parts(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of the targets and the logarithm of their variance, which broadcast."""
        self.check_outputs(outputs)
        return outputs, self.log_variance.to(outputs)[..., None, :]  # [S, R, N, O], [R, 1, O]

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return Σ_o log N(y_no; E y_no, V y_no) for every point, `[S, R, N]`, nats."""
        mean, log_variance = self._parts(outputs)
        check_pairs(targets, mean)
        return scored((mean - targets).square(), log_variance, -log_variance)

    @torch.no_grad()
    def scale_noise(self, factor: Tensor) -> None:
        """Multiply σ_o² by factors, `[R, O]`, if they are learned."""
        if self.log_variance.requires_grad:
            self.log_variance.add_(factor.to(self.log_variance).log())

    def config(self) -> ConfigDict:
        return {"noise_variance": self.start, "learn": self.learn, "replicas": list(self.replicas)}


class PerOutputGaussian(NoisePerTarget):
    """Gaussian noise with a variance for every output, y_o ~ N(f_o, σ_o²), independent over outputs.

    Args:
        noise_variance: a list of σ_o², one for every output, in squared units of the targets; initial values
            if learned.
        learn: whether they are learned, as point estimates.
        replicas: shape of the replica axes, if every replica has its own.

    >>> likelihood = PerOutputGaussian([0.25, 4.0])
    >>> likelihood.log_prob(torch.zeros(3, 5, 2), torch.zeros(5, 2)).shape
    torch.Size([3, 5])
    """

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
        self.check_outputs(outputs)
        noise = self.noise_variance.to(outputs)[..., None, :]
        return Moments(outputs, noise.expand(1, *outputs.shape[1:-2], 1, outputs.shape[-1]))


def scored(squares: Tensor, log_variance: Tensor, log_precision: Tensor) -> Tensor:
    """Return log densities, `[..., N]`, from squared residuals `[..., N, O]` or their expectation."""
    return -0.5 * (squares * log_precision.exp() + log_variance + LOG_2PI).sum(-1)


def _check_single(value: Any, name: str) -> None:
    several = isinstance(value, list | tuple | np.ndarray | Tensor)
    if several and (count := torch.as_tensor(value).numel()) > 1:
        raise ValueError(
            f"Gaussian has one {name.replace('_', ' ')} for all outputs, got {count}: "
            "gilib.likelihoods.PerOutputGaussian has one for each"
        )
    check_scale(value, name)
