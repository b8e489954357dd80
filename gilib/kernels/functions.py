"""Kernels with given hyper-parameters: their values between points, and their random features.

Every kernel has random features φ_i with mean zero and E φ_i(x) φ_i(x') = k(x, x') (Rahimi & Recht, 2007). F
features, multiplied by independent standard normal weights, added and divided by √F, make a function. On
average over the features, its covariance is k; given the features, the covariance has an error of about
σ²/√F. A sum of kernels adds their features, a product multiplies them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import ClassVar

import torch
from torch import Tensor
from torch.special import ndtr

from gilib.distributions import gamma_from_normal
from gilib.linalg.exponential import Exponents

CLOSEST = 1e-30  # smallest squared distance: at 0 the slope of √ is infinite
LOST = 1e-14  # rounding error of |a - b|², as a fraction of |a|² + |b|²
ALIKE = 1.0 - 1e-14  # largest cosine: at 1 the slope of arccos is infinite
APART = 1e-4  # distance beyond which the white noise of a path is independent


def longer(a: Tensor, b: Tensor) -> torch.dtype:
    """Return the longer of the dtypes of two tensors, which values between their points have."""
    return torch.promote_types(a.dtype, b.dtype)


class KernelFunction(ABC):
    """A kernel with given hyper-parameters; it is immutable, as a drawn function is.

    Hyper-parameters have shape `[R, 1, D]` or `[R, 1, 1]` and are stored in float64.
    """

    @property
    @abstractmethod
    def feature_noise(self) -> int:
        """Number of standard normals that one random feature needs."""

    @abstractmethod
    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k(a, b), `[..., M, N]`, for points `[..., M, D]` and `[..., N, D]`, in the longer dtype."""

    def unevaluated(self, a: Tensor, b: Tensor) -> Tensor | Exponents:
        """Return `cross(a, b)`, or its exponents if the kernel is an exponential."""
        return self.cross(a, b)

    @abstractmethod
    def diagonal(self, x: Tensor) -> Tensor:
        """Return k(x, x) for every point of `[..., N, D]`, `[..., N]`."""

    @abstractmethod
    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return F random features at points `[..., N, D]`, `[S, R, N, F]`.

        Args:
            x: the points.
            noise: standard normals, `[S, R, F, feature_noise]`.
        """

    def without_white(self) -> KernelFunction:
        """Return the kernel without its white noise; its features need as many normals as before."""
        return self

    def gram(self, z: Tensor, nugget: Tensor | None = None) -> Tensor:
        """Return k(z, z), `[..., M, M]`, with an exact diagonal, plus a nugget `[..., 1]` if one is given."""
        matrix, diagonal = self.cross(z, z), self.diagonal(z)
        if nugget is not None:
            diagonal = diagonal + nugget
        return torch.diagonal_scatter(matrix, diagonal.expand(matrix.shape[:-1]), dim1=-2, dim2=-1)


def _everywhere(value: Tensor, x: Tensor) -> Tensor:
    """Return a value `[R, 1]` for every point of `[..., N, D]`, `[..., N]`."""
    return value.expand(torch.broadcast_shapes(value.shape, x.shape[:-1]))


@dataclass(frozen=True)
class OfInputs(KernelFunction):
    """A kernel of points with D coordinates; a random feature needs a normal for each, and `extra` others."""

    extra: ClassVar[int] = 1  # for the phase of a wave
    inputs: int  # D

    @property
    def feature_noise(self) -> int:
        return self.inputs + self.extra


@dataclass(frozen=True)
class Homogeneous(OfInputs):
    """A kernel with the same variance everywhere."""

    variance: Tensor  # σ²

    def diagonal(self, x: Tensor) -> Tensor:
        return _everywhere(self.variance.squeeze(-1).to(x.dtype), x)


@dataclass(frozen=True)
class Stationary(Homogeneous):
    """A kernel that depends on its two points only through the distance r = |(x - x') / ℓ|."""

    lengthscale: Tensor  # ℓ

    def scaled(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sets of points in units of the lengthscales, `[..., D, N]`, in float64.

        The mean of `b` is subtracted from both, so that squared distances lose few digits.
        """
        a, b = (points.mT.to(torch.float64, memory_format=torch.contiguous_format) for points in (a, b))
        centre, lengthscale = b.mean(-1, keepdim=True).detach(), self.lengthscale.mT
        return (a - centre) / lengthscale, (b - centre) / lengthscale

    def distances(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return r², and |a|² + |b|², which sets the size of its rounding error, `[..., M, N]`, float64."""
        left, right = self.scaled(a, b)
        squares = left.square().sum(-2)[..., None] + right.square().sum(-2)[..., None, :]
        return squares - 2 * left.mT @ right, squares

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return √2 σ cos(ωᵀx + b), with ω drawn from the spectral density and b uniform on a full turn."""
        frequencies = self.spectrum(noise) / self.lengthscale.to(x.dtype)
        phases = 2 * math.pi * ndtr(noise[..., self.inputs, None])
        return (2 * self.variance.to(x.dtype)).sqrt() * torch.cos(x @ frequencies.mT + phases.mT)

    @abstractmethod
    def spectrum(self, noise: Tensor) -> Tensor:
        """Return frequencies at lengthscale 1, `[S, R, F, D]`, computed from the normals of the features."""


class RBFFunction(Stationary):
    """The squared exponential kernel, σ² exp(-½ r²)."""

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        return self.unevaluated(a, b).values()

    def unevaluated(self, a: Tensor, b: Tensor) -> Exponents:
        """Return log σ² - ½ r² as a product of (a, log σ² - ½ |a|², 1) and (b, 1, -½ |b|²), both scaled."""
        left, right = self.scaled(a, b)
        squares = [0.5 * points.square().sum(-2, keepdim=True) for points in (left, right)]
        one = left.new_ones(())
        left = torch.cat([left, self.variance.log() - squares[0], one.expand_as(squares[0])], -2)
        right = torch.cat([right, one.expand_as(squares[1]), -squares[1]], -2)
        return Exponents(left, right, longer(a, b))

    def spectrum(self, noise: Tensor) -> Tensor:
        return noise[..., : self.inputs]


@dataclass(frozen=True)
class MaternFunction(Stationary):
    """Matérn kernels of smoothness ν = ½, 3/2 and 5/2."""

    degrees: int  # 2ν

    @property
    def feature_noise(self) -> int:
        """D normals for a frequency, one for a phase, and 2ν that scale the frequency."""
        return self.inputs + 1 + self.degrees

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        distances, squares = self.distances(a, b)
        if self.degrees == 1:  # near 0 this kernel is linear in r, where the root of a rounding error shows
            distances = distances.masked_fill(distances < LOST * squares, 0.0)
        r = (self.degrees * distances.clamp_min(CLOSEST)).sqrt()
        polynomial = {1: torch.ones_like(r), 3: 1 + r, 5: 1 + r + r.square() / 3}[self.degrees]
        return (self.variance * polynomial * torch.exp(-r)).to(longer(a, b))

    def spectrum(self, noise: Tensor) -> Tensor:
        """Return Student's t with 2ν degrees of freedom: a normal over the root of a mean of 2ν squares."""
        squares = noise[..., -self.degrees :].square().mean(-1, keepdim=True)
        return noise[..., : self.inputs] / squares.sqrt()


@dataclass(frozen=True)
class RationalQuadraticFunction(Stationary):
    """The rational quadratic kernel, σ² (1 + r² / 2α)^-α, a mixture of RBF kernels."""

    extra: ClassVar[int] = 2  # for a phase, and for the variable that scales the frequency
    alpha: Tensor  # α

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        distances = self.distances(a, b)[0].clamp_min(0.0)
        power = -self.alpha * torch.log1p(distances / (2 * self.alpha))
        return (self.variance * power.exp()).to(longer(a, b))

    def spectrum(self, noise: Tensor) -> Tensor:
        """Return normals times the root of a Gamma variable with shape α and mean 1."""
        scale = gamma_from_normal(self.alpha, noise[..., -1:]) / self.alpha.to(noise.dtype)
        return noise[..., : self.inputs] * scale.sqrt()


@dataclass(frozen=True)
class CosineFunction(OfInputs):
    """The cosine kernel, Π_d cos(2π (x_d - x'_d) / p_d)."""

    period: Tensor  # p

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """Map each coordinate to a circle, and multiply the inner products of all coordinates."""
        left, right = (on_circles(x, self.period).unflatten(-1, (2, -1)).movedim(-1, -3) for x in (a, b))
        return (left @ right.mT).prod(-3).to(longer(a, b))

    def diagonal(self, x: Tensor) -> Tensor:
        return _everywhere(x.new_ones(self.period.shape[:-1]), x)

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return √2 cos(Σ_d ±2π x_d / p_d + b), with random, independent signs and b uniform."""
        frequencies = noise[..., : self.inputs].sign() / self.period.to(x.dtype)
        phases = ndtr(noise[..., self.inputs, None])
        return math.sqrt(2) * torch.cos(2 * math.pi * (x @ frequencies.mT + phases.mT))


class WhiteFunction(Homogeneous):
    """White noise: σ² between a row and itself, 0 between two rows."""

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """Return zeros, because different rows share no noise."""
        lead = torch.broadcast_shapes(self.variance.shape[:-2], a.shape[:-2], b.shape[:-2])
        return a.new_zeros((), dtype=longer(a, b)).expand(*lead, a.shape[-2], b.shape[-2])

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return waves that are independent at points more than `APART` away, without gradients in x."""
        points = x.detach() / APART
        phases = 2 * math.pi * ndtr(noise[..., self.inputs, None])
        waves = torch.cos(points @ noise[..., : self.inputs].mT + phases.mT)
        return (2 * self.variance.to(x.dtype)).sqrt() * waves

    def without_white(self) -> KernelFunction:
        return replace(self, variance=torch.zeros_like(self.variance))


@dataclass(frozen=True)
class OfAugmented(OfInputs):
    """A kernel of the augmented points x̃ = (√v_1 x_1, ..., √v_D x_D, √b)."""

    weight_variance: Tensor  # v
    bias_variance: Tensor | None = field(default=None, kw_only=True)  # b; None: there is no coordinate √b

    def augmented(self, x: Tensor) -> Tensor:
        """Return the augmented points, `[..., N, D + 1]`."""
        points = x * self.weight_variance.to(x.dtype).sqrt()
        if self.bias_variance is None:
            return points
        bias = self.bias_variance.to(x.dtype).sqrt().expand(*points.shape[:-1], 1)
        return torch.cat([points, bias], -1)


@dataclass(frozen=True)
class ArcCosineFunction(OfAugmented):
    """The arc-cosine kernels of order 0 and 1 (Cho & Saul, 2009)."""

    extra: ClassVar[int] = 2  # for a bias and for a sign
    variance: Tensor  # σ²
    order: int  # 0 or 1

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = self.augmented(a.double()), self.augmented(b.double())
        norms = left.norm(dim=-1)[..., None] * right.norm(dim=-1)[..., None, :]
        cosine = (left @ right.mT / norms).clamp(-ALIKE, ALIKE)
        angle = cosine.acos().masked_fill(cosine >= ALIKE, 0.0)
        if self.order == 0:
            value = 1 - angle / math.pi
        else:
            value = norms * (angle.sin() + (math.pi - angle) * cosine) / math.pi
        return (self.variance * value).to(longer(a, b))

    def diagonal(self, x: Tensor) -> Tensor:
        """Return σ² (order 0) or σ² |x̃|² (order 1) for every point, `[..., N]`."""
        squares = self.augmented(x).square().sum(-1)
        variance = self.variance.squeeze(-1).to(x.dtype)
        return variance * (squares if self.order else torch.ones_like(squares))

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return ±√2 σ times a step (order 0) or a rectifier (order 1) of wᵀx̃, with a random sign."""
        projected = self.augmented(x) @ noise[..., :-1].mT
        value = projected.relu() if self.order else (projected > 0).to(projected)
        return (2 * self.variance.to(x.dtype)).sqrt() * noise[..., -1:].mT.sign() * value


@dataclass(frozen=True)
class DotProductFunction(OfAugmented):
    """The kernel of linear functions, Σ_d v_d x_d x'_d + b."""

    @property
    def feature_noise(self) -> int:
        """D normals for weights, and one for a bias if there is one."""
        return self.inputs + (self.bias_variance is not None)

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.augmented(a.double()) @ self.augmented(b.double()).mT).to(longer(a, b))

    def diagonal(self, x: Tensor) -> Tensor:
        return self.augmented(x).square().sum(-1)

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        return self.augmented(x) @ noise.mT


@dataclass(frozen=True)
class Combined(KernelFunction):
    """Several kernels, whose values and features are added or multiplied."""

    parts: tuple[KernelFunction, ...]  # the kernels
    operation: Callable[[Tensor, Tensor], Tensor]  # `operator.add` or `operator.mul`

    @property
    def feature_noise(self) -> int:
        return sum(part.feature_noise for part in self.parts)

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        return reduce(self.operation, [part.cross(a, b) for part in self.parts])

    def diagonal(self, x: Tensor) -> Tensor:
        return reduce(self.operation, [part.diagonal(x) for part in self.parts])

    def without_white(self) -> KernelFunction:
        """Remove white noise from every part; return this object itself if no part has any."""
        parts = tuple(part.without_white() for part in self.parts)
        same = all(new is old for new, old in zip(parts, self.parts, strict=True))
        return self if same else replace(self, parts=parts)

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        pieces = noise.split([part.feature_noise for part in self.parts], -1)
        pairs = zip(self.parts, pieces, strict=True)
        return reduce(self.operation, [part.features(x, piece) for part, piece in pairs])


@dataclass(frozen=True)
class Warped(KernelFunction):
    """A kernel between the images of points under a map."""

    kernel: KernelFunction  # the kernel between images
    # the map, a function of points `[..., N, D]`; its images may have a longer dtype than the points
    warp: Callable[[Tensor], Tensor]

    @property
    def feature_noise(self) -> int:
        return self.kernel.feature_noise

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        found = self.unevaluated(a, b)
        return found.values() if isinstance(found, Exponents) else found

    def unevaluated(self, a: Tensor, b: Tensor) -> Tensor | Exponents:
        """Return the kernel between the images, or its exponents; values have the dtype of the points."""
        found, dtype = self.kernel.unevaluated(self.warp(a), self.warp(b)), longer(a, b)
        return found._replace(dtype=dtype) if isinstance(found, Exponents) else found.to(dtype)

    def diagonal(self, x: Tensor) -> Tensor:
        return self.kernel.diagonal(self.warp(x)).to(x.dtype)

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        return self.kernel.features(self.warp(x).to(x.dtype), noise)

    def without_white(self) -> KernelFunction:
        kernel = self.kernel.without_white()
        return self if kernel is self.kernel else replace(self, kernel=kernel)


def on_circles(x: Tensor, period: Tensor) -> Tensor:
    """Map every coordinate to the unit circle, once around in each period p.

    The images are all cosines, then all sines, `[..., N, 2D]`, in float64, 4 sin²(π (x - x') / p) apart.
    """
    angles = 2 * math.pi * x.double() / period
    return torch.cat([angles.cos(), angles.sin()], -1)


def select(x: Tensor, columns: tuple[int, ...]) -> Tensor:
    """Return some of the coordinates, which are numbered from 0."""
    # slices, because the host would wait for a tensor of indices to reach an accelerator
    first, end = columns[0], columns[-1] + 1
    if columns == tuple(range(first, end)):
        return x[..., first:end]
    return torch.stack([x[..., column] for column in columns], -1)


def periodic(lengthscale: Tensor, variance: Tensor, period: Tensor, inputs: int) -> KernelFunction:
    """Return σ² exp(-2 Σ_d sin²(π (x_d - x'_d) / p_d) / ℓ_d²), the RBF kernel between points on circles."""
    wide = lengthscale.expand(*lengthscale.shape[:-1], inputs)
    between = RBFFunction(2 * inputs, variance, torch.cat([wide, wide], -1))
    return Warped(between, partial(on_circles, period=period))


def selected(parts: tuple[KernelFunction, ...], columns: tuple[int, ...]) -> KernelFunction:
    """Return a kernel, the only one of `parts`, on some of the coordinates."""
    return Warped(parts[0], partial(select, columns=columns))
