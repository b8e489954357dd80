"""Kernels with given hyper-parameters: values between points, and random features with these products.

Every kernel has random features φ_i with mean zero and E φ_i(x) φ_i(x') = k(x, x') (Rahimi & Recht, 2007): F
of them with standard normal weights, divided by √F, make a function whose covariance is k on average over the
features, and given the features is off by about σ²/√F. Sums of kernels add features, products multiply them.

Noise that belongs to a row alone, as `White` is, is on a kernel's diagonal, and not in its `cross`. Points of
one `gram` are rows that differ, whatever their coordinates; so are points and inducing points.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor
from torch.special import ndtr

from gilib.distributions import gamma_from_normal
from gilib.linalg.exponential import Exponents

CLOSEST = 1e-30  # of squared distances: √ has no slope at 0
LOST = 1e-14  # what rounding leaves of the squared distance of two points that are one, of their squares
ALIKE = 1.0 - 1e-14  # of cosines, nor has arccos at 1
APART = 1e-4  # between points, beyond which white noise along a path is independent


def longer(a: Tensor, b: Tensor) -> torch.dtype:
    """The dtype of values between points of two dtypes."""
    return torch.promote_types(a.dtype, b.dtype)


class KernelFunction(ABC):
    """A kernel with its hyper-parameters; a value, as a drawn function is.

    Hyper-parameters have shape `[R, 1, D]` or `[R, 1, 1]` and are kept in float64.
    """

    @property
    @abstractmethod
    def feature_noise(self) -> int:
        """How many standard normals a random feature takes."""

    @abstractmethod
    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """k(a, b), `[..., M, N]`, of points `[..., M, D]` and `[..., N, D]`, in the longer dtype."""

    def unevaluated(self, a: Tensor, b: Tensor) -> Tensor | Exponents:
        """The same, or what it is the exponential of, for those who evaluate it in pieces."""
        return self.cross(a, b)

    @abstractmethod
    def diagonal(self, x: Tensor) -> Tensor:
        """k(x, x), `[..., N]`, of every point of `[..., N, D]`."""

    @abstractmethod
    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """F random features `[S, R, N, F]` of `[..., N, D]`, from normals `[S, R, F, feature_noise]`."""

    def without_white(self) -> KernelFunction:
        """The kernel without noise that belongs to a row alone, with as many normals a feature."""
        return self

    def gram(self, z: Tensor, nugget: Tensor | None = None) -> Tensor:
        """k(z, z), `[..., M, M]`, with an exact diagonal, to which a nugget `[..., 1]` may be added."""
        matrix, diagonal = self.cross(z, z), self.diagonal(z)
        if nugget is not None:
            diagonal = diagonal + nugget
        return torch.diagonal_scatter(matrix, diagonal.expand(matrix.shape[:-1]), dim1=-2, dim2=-1)


@dataclass(frozen=True)
class Stationary(KernelFunction):
    """A kernel of the distance r = |(x - x') / ℓ|.

    Attributes:
        lengthscale: ℓ.
        variance: σ².
        inputs: D.
    """

    lengthscale: Tensor
    variance: Tensor
    inputs: int

    @property
    def feature_noise(self) -> int:
        """A frequency and a phase."""
        return self.inputs + 1

    def scaled(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """The coordinates of both, `[..., D, N]`, in units of the lengthscales, centred, in float64."""
        a, b = (points.mT.to(torch.float64, memory_format=torch.contiguous_format) for points in (a, b))
        centre, lengthscale = b.mean(-1, keepdim=True).detach(), self.lengthscale.mT
        return (a - centre) / lengthscale, (b - centre) / lengthscale

    def distances(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Squared, and the squares that they are made of, `[..., M, N]`, in float64."""
        left, right = self.scaled(a, b)
        squares = left.square().sum(-2)[..., None] + right.square().sum(-2)[..., None, :]
        return squares - 2 * left.mT @ right, squares

    def diagonal(self, x: Tensor) -> Tensor:
        """σ²."""
        variance = self.variance[..., 0].to(x.dtype)
        return variance.expand(torch.broadcast_shapes(variance.shape, x.shape[:-1]))

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """√2 σ cos(ωᵀx + b), ω from the spectral density, b uniform."""
        frequencies = self.spectrum(noise) / self.lengthscale.to(x.dtype)
        phases = 2 * math.pi * ndtr(noise[..., self.inputs, None])
        return (2 * self.variance.to(x.dtype)).sqrt() * torch.cos(x @ frequencies.mT + phases.mT)

    @abstractmethod
    def spectrum(self, noise: Tensor) -> Tensor:
        """Frequencies `[S, R, F, D]` at lengthscale 1, from the normals of the features."""


class RBFFunction(Stationary):
    """σ² exp(-½ r²)."""

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """By its exponents."""
        return self.unevaluated(a, b).values()

    def unevaluated(self, a: Tensor, b: Tensor) -> Exponents:
        """One product of points with two more coordinates is the whole exponent."""
        left, right = self.scaled(a, b)
        squares = [0.5 * points.square().sum(-2, keepdim=True) for points in (left, right)]
        one = left.new_ones(())
        left = torch.cat([left, self.variance.log() - squares[0], one.expand_as(squares[0])], -2)
        right = torch.cat([right, one.expand_as(squares[1]), -squares[1]], -2)
        return Exponents(left, right, longer(a, b))

    def spectrum(self, noise: Tensor) -> Tensor:
        """Standard normals."""
        return noise[..., : self.inputs]


@dataclass(frozen=True)
class MaternFunction(Stationary):
    """Matérn kernels of smoothness ½, 3/2 and 5/2.

    Attributes:
        degrees: 2ν.
    """

    degrees: int

    @property
    def feature_noise(self) -> int:
        """A frequency, a phase, and 2ν normals."""
        return self.inputs + 1 + self.degrees

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """From distances in float64; for ν = ½ points that coincide up to rounding are one."""
        distances, squares = self.distances(a, b)
        if self.degrees == 1:  # which alone is so rough that the root of a rounding shows
            distances = distances.masked_fill(distances < LOST * squares, 0.0)
        r = (self.degrees * distances.clamp_min(CLOSEST)).sqrt()
        polynomial = {1: torch.ones_like(r), 3: 1 + r, 5: 1 + r + r.square() / 3}[self.degrees]
        return (self.variance * polynomial * torch.exp(-r)).to(longer(a, b))

    def spectrum(self, noise: Tensor) -> Tensor:
        """Student's t with 2ν degrees of freedom: a normal over the root of a mean of 2ν squares."""
        squares = noise[..., -self.degrees :].square().mean(-1, keepdim=True)
        return noise[..., : self.inputs] / squares.sqrt()


@dataclass(frozen=True)
class RationalQuadraticFunction(Stationary):
    """σ² (1 + r² / 2α)^-α, a mixture of RBF kernels.

    Attributes:
        alpha: α.
    """

    alpha: Tensor

    @property
    def feature_noise(self) -> int:
        """A frequency, a phase, and the normal that a lengthscale is made from."""
        return self.inputs + 2

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """From distances in float64."""
        distances = self.distances(a, b)[0].clamp_min(0.0)
        power = -self.alpha * torch.log1p(distances / (2 * self.alpha))
        return (self.variance * power.exp()).to(longer(a, b))

    def spectrum(self, noise: Tensor) -> Tensor:
        """Normals times the root of a Gamma variable with shape α and mean 1."""
        scale = gamma_from_normal(self.alpha, noise[..., -1:]) / self.alpha.to(noise.dtype)
        return noise[..., : self.inputs] * scale.sqrt()


@dataclass(frozen=True)
class CosineFunction(KernelFunction):
    """Π_d cos(2π (x_d - x'_d) / p_d).

    Attributes:
        period: p.
        inputs: D.
    """

    period: Tensor
    inputs: int

    @property
    def feature_noise(self) -> int:
        """Signs and a phase."""
        return self.inputs + 1

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """Products of points on circles, one for each coordinate."""
        left, right = (Circle(self.period)(x).unflatten(-1, (2, -1)).movedim(-1, -3) for x in (a, b))
        return (left @ right.mT).prod(-3).to(longer(a, b))

    def diagonal(self, x: Tensor) -> Tensor:
        """1."""
        lead = torch.broadcast_shapes(self.period.shape[:-1], x.shape[:-1])
        return x.new_ones(()).expand(lead)

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """√2 cos(Σ_d ±2π x_d / p_d + b), b uniform, every sign by itself."""
        frequencies = noise[..., : self.inputs].sign() / self.period.to(x.dtype)
        phases = ndtr(noise[..., self.inputs, None])
        return math.sqrt(2) * torch.cos(2 * math.pi * (x @ frequencies.mT + phases.mT))


@dataclass(frozen=True)
class WhiteFunction(KernelFunction):
    """σ² for a row and itself, 0 for two rows.

    Attributes:
        variance: σ².
        inputs: D.
    """

    variance: Tensor
    inputs: int

    @property
    def feature_noise(self) -> int:
        """A frequency and a phase."""
        return self.inputs + 1

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """Zeros."""
        lead = torch.broadcast_shapes(self.variance.shape[:-2], a.shape[:-2], b.shape[:-2])
        return a.new_zeros((), dtype=longer(a, b)).expand(*lead, a.shape[-2], b.shape[-2])

    def diagonal(self, x: Tensor) -> Tensor:
        """σ²."""
        variance = self.variance[..., 0].to(x.dtype)
        return variance.expand(torch.broadcast_shapes(variance.shape, x.shape[:-1]))

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """Waves so short that points differ as soon as they are `APART`; no slope in x."""
        points = x.detach() / APART
        phases = 2 * math.pi * ndtr(noise[..., self.inputs, None])
        waves = torch.cos(points @ noise[..., : self.inputs].mT + phases.mT)
        return (2 * self.variance.to(x.dtype)).sqrt() * waves

    def without_white(self) -> KernelFunction:
        """Nothing."""
        return replace(self, variance=torch.zeros_like(self.variance))


@dataclass(frozen=True)
class ArcCosineFunction(KernelFunction):
    """The arc-cosine kernels of order 0 and 1.

    Attributes:
        weight_variance: v.
        bias_variance: b.
        variance: σ².
        inputs: D.
        order: 0 or 1.
    """

    weight_variance: Tensor
    bias_variance: Tensor
    variance: Tensor
    inputs: int
    order: int

    @property
    def feature_noise(self) -> int:
        """Weights, a bias and a sign."""
        return self.inputs + 2

    def _augmented(self, x: Tensor) -> Tensor:
        return _augmented(x, self.weight_variance, self.bias_variance)

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """From angles in float64."""
        left, right = self._augmented(a.double()), self._augmented(b.double())
        norms = left.norm(dim=-1)[..., None] * right.norm(dim=-1)[..., None, :]
        cosine = (left @ right.mT / norms).clamp(-ALIKE, ALIKE)
        angle = cosine.acos().masked_fill(cosine >= ALIKE, 0.0)
        if self.order == 0:
            value = 1 - angle / math.pi
        else:
            value = norms * (angle.sin() + (math.pi - angle) * cosine) / math.pi
        return (self.variance * value).to(longer(a, b))

    def diagonal(self, x: Tensor) -> Tensor:
        """σ², times |x̃|² at order 1."""
        squares = self._augmented(x).square().sum(-1)
        variance = self.variance[..., 0].to(x.dtype)
        return variance * (squares if self.order else torch.ones_like(squares))

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """±√2 σ times a rectifier or a step of wᵀx̃."""
        projected = self._augmented(x) @ noise[..., :-1].mT
        value = projected.relu() if self.order else (projected > 0).to(projected)
        return (2 * self.variance.to(x.dtype)).sqrt() * noise[..., -1:].mT.sign() * value


@dataclass(frozen=True)
class DotProductFunction(KernelFunction):
    """Σ_d v_d x_d x'_d + b.

    Attributes:
        weight_variance: v.
        bias_variance: b, or None.
        inputs: D.
    """

    weight_variance: Tensor
    bias_variance: Tensor | None
    inputs: int

    @property
    def feature_noise(self) -> int:
        """Weights, and a bias if there is one."""
        return self.inputs + (self.bias_variance is not None)

    def _augmented(self, x: Tensor) -> Tensor:
        return _augmented(x, self.weight_variance, self.bias_variance)

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """A product."""
        return (self._augmented(a.double()) @ self._augmented(b.double()).mT).to(longer(a, b))

    def diagonal(self, x: Tensor) -> Tensor:
        """Squares."""
        return self._augmented(x).square().sum(-1)

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """Linear functions."""
        return self._augmented(x) @ noise.mT


def _augmented(x: Tensor, weight_variance: Tensor, bias_variance: Tensor | None) -> Tensor:
    """(√v_1 x_1, ..., √v_D x_D, √b), `[..., N, D + 1]`."""
    points = x * weight_variance.to(x.dtype).sqrt()
    if bias_variance is None:
        return points
    return torch.cat([points, bias_variance.to(x.dtype).sqrt().expand(*points.shape[:-1], 1)], -1)


@dataclass(frozen=True)
class Combined(KernelFunction):
    """Values of several kernels, added or multiplied.

    Attributes:
        parts: the kernels.
    """

    parts: tuple[KernelFunction, ...]

    @abstractmethod
    def combine(self, values: Sequence[Tensor]) -> Tensor:
        """Of the parts' values."""

    @property
    def feature_noise(self) -> int:
        """That of all parts."""
        return sum(part.feature_noise for part in self.parts)

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """Of all parts."""
        return self.combine([part.cross(a, b) for part in self.parts])

    def diagonal(self, x: Tensor) -> Tensor:
        """Of all parts."""
        return self.combine([part.diagonal(x) for part in self.parts])

    def without_white(self) -> KernelFunction:
        """Of all parts; the kernel itself where none is white."""
        parts = tuple(part.without_white() for part in self.parts)
        same = all(new is old for new, old in zip(parts, self.parts, strict=True))
        return self if same else replace(self, parts=parts)

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """Of all parts, which are independent and have mean zero."""
        pieces = noise.split([part.feature_noise for part in self.parts], -1)
        pairs = zip(self.parts, pieces, strict=True)
        return self.combine([part.features(x, piece) for part, piece in pairs])


class SumFunction(Combined):
    """k_1 + k_2 + ..."""

    def combine(self, values: Sequence[Tensor]) -> Tensor:
        """The sum."""
        return reduce(torch.add, values)


class ProductFunction(Combined):
    """k_1 · k_2 · ..."""

    def combine(self, values: Sequence[Tensor]) -> Tensor:
        """The product."""
        return reduce(torch.mul, values)


@dataclass(frozen=True)
class Warped(KernelFunction):
    """A kernel of what a map makes of the points.

    Attributes:
        kernel: of the images.
        warp: the map, from points `[..., N, D]`; its images may be in a longer dtype.
    """

    kernel: KernelFunction
    warp: Callable[[Tensor], Tensor]

    @property
    def feature_noise(self) -> int:
        """That of the kernel."""
        return self.kernel.feature_noise

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """Between images."""
        found = self.unevaluated(a, b)
        return found.values() if isinstance(found, Exponents) else found

    def unevaluated(self, a: Tensor, b: Tensor) -> Tensor | Exponents:
        """Between images."""
        found, dtype = self.kernel.unevaluated(self.warp(a), self.warp(b)), longer(a, b)
        return found._replace(dtype=dtype) if isinstance(found, Exponents) else found.to(dtype)

    def diagonal(self, x: Tensor) -> Tensor:
        """Of images."""
        return self.kernel.diagonal(self.warp(x)).to(x.dtype)

    def features(self, x: Tensor, noise: Tensor) -> Tensor:
        """Of images."""
        return self.kernel.features(self.warp(x).to(x.dtype), noise)

    def without_white(self) -> KernelFunction:
        """The same of a kernel without."""
        kernel = self.kernel.without_white()
        return self if kernel is self.kernel else replace(self, kernel=kernel)


@dataclass(frozen=True)
class Circle:
    """Points on the unit circle, one for every coordinate, once around in each period.

    The squared distance of two of them is 4 sin²(π (x - x') / p).

    Attributes:
        period: p.
    """

    period: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """All cosines, then all sines, `[..., N, 2D]`, in float64."""
        angles = 2 * math.pi * x.double() / self.period
        return torch.cat([angles.cos(), angles.sin()], -1)


@dataclass(frozen=True)
class Select:
    """Some coordinates of points.

    Attributes:
        columns: which.
    """

    columns: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        """In the order of `columns`; without an index, which an accelerator would have to wait for."""
        first, end = self.columns[0], self.columns[-1] + 1
        if self.columns == tuple(range(first, end)):
            return x[..., first:end]
        return torch.stack([x[..., column] for column in self.columns], -1)


def periodic(lengthscale: Tensor, variance: Tensor, period: Tensor, inputs: int) -> KernelFunction:
    """σ² exp(-2 Σ_d sin²(π (x_d - x'_d) / p_d) / ℓ_d²): the RBF kernel of points on circles."""
    wide = lengthscale.expand(*lengthscale.shape[:-1], inputs)
    return Warped(RBFFunction(torch.cat([wide, wide], -1), variance, 2 * inputs), Circle(period))
