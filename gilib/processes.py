"""Functions drawn from a Gaussian process given its values at the inducing inputs.

With K = k(Z, Z) + jitter = R Rᵀ, u = R w and a(x) = R⁻¹ k(Z, x), the process at a point given u is Gaussian,

    f(x) | u ~ N(a(x)ᵀ w, k(x, x) - |a(x)|²),

and if w_o ~ N(m_o, S_o) its distribution is N(aᵀ m_o, k(x, x) - |a|² + aᵀ S_o a). An estimate samples every
point independently (`Marginals`), a joint draw samples N points together (`Jointly`), and a draw is a
function of any points (`Path`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gilib.draws import GaussianFunction, Moments
from gilib.kernels import KernelFunction
from gilib.linalg import cholesky, cholesky_and_inverse, readable
from gilib.linalg.products import matmul, product
from gilib.posteriors import WeightDistribution
from gilib.projection import project
from gilib.randomness import noise_at
from gilib.validation import check_points_kind

COINCIDE = (
    "points that coincide or lie closely together, measured in lengthscales; "
    "raise the layer's jitter, or take fewer points that lie farther apart"
)
NAMED = "the kernel matrix of the inducing inputs", COINCIDE
DELICATE = 0.1  # a mean is computed in float64 if rounding may exceed this fraction of the nugget's deviation
NUGGET = 1e-10  # fraction of the variance added to a covariance of points before it is factorised


@dataclass(frozen=True)
class Inducing:
    """The prior of a process at its inducing inputs."""

    kernel: KernelFunction  # kernel with its hyper-parameters
    inputs: Tensor  # Z, `[S, R, M, D]`, or fewer axes
    root: Tensor  # R, `[..., M, M]`, in float64
    inverse: Tensor  # R⁻¹, `[..., M, M]`, in float64
    nugget: Tensor  # variance that is added to the diagonal of K, `[..., 1, 1]`

    @classmethod
    def of(cls, kernel: KernelFunction, inputs: Tensor, jitter: float) -> Inducing:
        """Factorise K with `jitter` times the mean variance added to its diagonal."""
        inputs64 = inputs.double()
        nugget = jitter * kernel.diagonal(inputs64).mean(-1, keepdim=True)
        factors = cholesky_and_inverse(kernel.gram(inputs64, nugget), *NAMED)
        return cls(kernel, inputs, *factors, nugget[..., None])

    def points(self, x: Tensor) -> Tensor:
        """Return `x` if its points have the dimension and dtype of the inducing inputs."""
        width = self.inputs.shape[-1]
        if x.dim() < 2 or x.shape[-1] != width:
            raise ValueError(f"a Gaussian process takes points [..., N, {width}], got {list(x.shape)}")
        check_points_kind(x, self.inputs)
        return x

    def white(self, x: Tensor) -> Tensor:
        """Return a(x) = R⁻¹ k(Z, x), `[..., N, M]`, in the dtype of `x`."""
        return product(self.kernel.cross(x, self.inputs).to(x.dtype), self.inverse.to(x.dtype).mT)

    def arithmetic(self, x: Tensor, weights: Tensor) -> torch.dtype:
        """Return the dtype for aᵀw: float64 if rounding may exceed a tenth of the nugget's deviation.

        A rounding error of k, at most ε σ², moves aᵀw by about ε σ² |diag(r) w|, where r_i is the norm of row
        i of R⁻¹. An accelerator, where no values are read, keeps the dtype of `x`.
        """
        if x.dtype == torch.float64 or not readable(weights):
            return x.dtype
        with torch.no_grad():
            rows = torch.linalg.vector_norm(self.inverse, dim=-1, keepdim=True)
            moved = torch.linalg.vector_norm(rows * weights, dim=-2, keepdim=True)
            rounding = 0.5 * torch.finfo(x.dtype).eps * self.kernel.diagonal(self.inputs).amax(-1)
            lost = (rounding[..., None, None] * moved > DELICATE * self.nugget.sqrt()).any()
        return torch.float64 if readable(lost) and bool(lost) else x.dtype


@dataclass(frozen=True)
class Marginals(GaussianFunction):
    """An estimate: a function that samples the process at every point independently."""

    inducing: Inducing  # prior of the process at its inducing inputs
    distribution: WeightDistribution  # distribution of w
    noise: Tensor  # z, `[S, R, N, O]`

    def moments(self, x: Tensor) -> Moments:
        mean, variance = gaussian(self.inducing, self.distribution, x)
        noise = noise_at(self.noise, mean, -2)
        return Moments(mean.expand(noise.shape), variance.expand(noise.shape))

    def __call__(self, x: Tensor) -> Tensor:
        mean, variance = gaussian(self.inducing, self.distribution, x)
        noise = noise_at(self.noise, mean, -2)
        return mean.expand(noise.shape) + variance.sqrt() * noise


def gaussian(inducing: Inducing, distribution: WeightDistribution, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of f(x), `[..., N, O]`; variances have one column if outputs share them."""
    kernel, covariance, x = inducing.kernel, distribution.covariance, inducing.points(x)
    dtype = inducing.arithmetic(x, distribution.mean)
    at = project(
        kernel.unevaluated(x.to(dtype), inducing.inputs),
        inducing.inverse.to(dtype),
        distribution.mean.to(dtype),
        None if covariance is None else covariance.to(dtype),
    ).to(x.dtype)
    prior = kernel.diagonal(x)[..., None]
    variance = prior - at.square
    if at.forms is not None:
        variance = variance + at.forms
    return at.mean, positive(variance, prior)


def positive(variance: Tensor, prior: Tensor) -> Tensor:
    """Clamp a variance that rounding may have made negative to a positive number, where √ has a gradient."""
    limits = torch.finfo(variance.dtype)
    return variance.clamp_min((limits.eps * prior.detach()).clamp_min(limits.tiny))


@dataclass(frozen=True)
class Jointly(GaussianFunction):
    """A joint draw: a function that samples the process at N points jointly, given a draw of u."""

    inducing: Inducing  # prior of the process at its inducing inputs
    weights: Tensor  # w, `[S, R, M, O]`
    noise: Tensor  # z, `[S, R, N, O]`

    def __call__(self, x: Tensor) -> Tensor:
        """Return aᵀ w + L z at `x`, in float64, where L Lᵀ is the covariance of the points given u."""
        x64 = self.inducing.points(x).double()
        white = self.inducing.white(x64)
        prior = self.inducing.kernel.gram(x64)
        variance = prior.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        identity = torch.eye(prior.shape[-1], dtype=prior.dtype, device=prior.device)
        covariance = prior - white @ white.mT + NUGGET * variance * identity
        root = cholesky(covariance, "the covariance of the points given the inducing outputs", COINCIDE)
        noise = noise_at(self.noise, x, -2)
        return (white @ self.weights.double() + root @ noise.double()).to(x.dtype)

    def moments(self, x: Tensor) -> Moments:
        """Return the draw as mean, without variances: its points are not independent."""
        return Moments(self(x))


@dataclass(frozen=True)
class Path(GaussianFunction):
    """A draw: a function from the prior, corrected to pass through u (Wilson et al., 2020).

        f(x) = φ(x)ᵀω + a(x)ᵀ (w - R⁻¹ (φ(Z)ᵀω + √jitter ε))

    On average over the random features φ, mean and covariance are exact. `moments` are exact at each point.
    """

    approximate: ClassVar[bool] = True
    inducing: Inducing  # prior of the process at its inducing inputs
    distribution: WeightDistribution  # distribution of w
    features: Tensor  # normals of the random features, `[S, R, F, P]`
    weights: Tensor  # ω/√F, `[S, R, F, O]`
    correction: Tensor  # the vector that multiplies a(x), `[S, R, M, O]`

    @classmethod
    def of(
        cls, inducing: Inducing, distribution: WeightDistribution, drawn: Tensor, noise: Tensor, features: int
    ) -> Path:
        """Construct a path through w, `[S, R, M, O]`, from normals, `[S, R, size]`, split by `sizes`."""
        points, outputs = drawn.shape[-2:]
        pieces = noise.split(cls.sizes(inducing.kernel, features, points, outputs), -1)
        white = pieces[0].unflatten(-1, (features, -1))
        weights, jitter = (piece.unflatten(-1, (-1, outputs)) for piece in pieces[1:])
        weights = weights / math.sqrt(features)
        smooth = inducing.kernel.without_white()  # what white noise adds is each inducing point's own
        prior = smooth.features(inducing.inputs, white) @ weights
        nugget = inducing.nugget
        if smooth is not inducing.kernel:
            diagonals = (kernel.diagonal(inducing.inputs.double()) for kernel in (inducing.kernel, smooth))
            nugget = nugget + torch.sub(*diagonals)[..., None]
        prior = prior.double() + nugget.sqrt() * jitter.double()
        correction = drawn - (inducing.inverse @ prior).to(drawn.dtype)
        return cls(inducing, distribution, white, weights, correction)

    @staticmethod
    def sizes(kernel: KernelFunction, num_features: int, points: int, outputs: int) -> tuple[int, int, int]:
        """Return the numbers of normals for features `[F, P]`, their weights ω `[F, O]`, and ε `[M, O]`."""
        return num_features * kernel.feature_noise, num_features * outputs, points * outputs

    def __call__(self, x: Tensor) -> Tensor:
        prior = matmul(self.inducing.kernel.features(self.inducing.points(x), self.features), self.weights)
        dtype = self.inducing.arithmetic(x, self.correction)
        return prior + product(self.inducing.white(x.to(dtype)), self.correction.to(dtype)).to(x.dtype)

    def moments(self, x: Tensor) -> Moments:
        """Return mean and variance of f(x), with the path integrated out but not the layers below."""
        mean, variance = gaussian(self.inducing, self.distribution, x)
        lead = (*self.correction.shape[:-2], *mean.shape[-2:])
        return Moments(mean.expand(lead), variance.expand(lead))

    def covariances(self, x: Tensor) -> Moments:
        mean, _ = self.moments(x)
        x, covariance = self.inducing.points(x).double(), self.distribution.covariance
        white = self.inducing.white(x)
        joint = (self.inducing.kernel.gram(x) - white @ white.mT)[..., None]
        if covariance is not None:
            wide = white[..., None, :, :]
            joint = joint + (wide @ covariance.double() @ wide.mT).movedim(-3, -1)
        return Moments(mean, joint.expand(*mean.shape[:-1], *joint.shape[-2:-1], mean.shape[-1]).to(mean))
