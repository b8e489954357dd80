"""The bound of `gilib.training.Collapsed`, which defines the symbols, from sums over the data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

import torch
from torch import Tensor

from gilib.likelihoods.base import LOG_2PI
from gilib.linalg import cholesky, cholesky_and_inverse
from gilib.linalg.factor import identities
from gilib.processes import Inducing
from gilib.regression.primal import merge_outputs, split_outputs
from gilib.statistics import per_output_statistics


class Sums(NamedTuple):
    """The sums over the data that the bound needs, in float64."""

    gram: Tensor  # A Aᵀ, `[M, M]`
    moments: Tensor  # A y, `[M, O]`
    squares: Tensor  # Σ_n y_no², `[O]`
    left: Tensor  # Σ_n k(x_n, x_n) - |a(x_n)|², the prior variance that the inducing points leave unexplained
    points: Tensor  # N; with weights their sum

    @classmethod
    def over(cls, parts: Iterable[Self]) -> Self:
        """Add up the sums over several parts of the data."""
        return cls(*(sum(part[1:], part[0]) for part in zip(*parts, strict=True)))


class WhitePosterior(NamedTuple):
    """Q(w_o) = N(B⁻¹ ΦᵀΛv, B⁻¹) of every output, B = T Tᵀ = Id + ΦᵀΛΦ: a regression onto pseudo-outputs v."""

    mean: Tensor  # the mean, `[M, O]`
    factor: Tensor  # T, `[O, M, M]`
    inverse: Tensor  # T⁻¹, `[O, M, M]`

    @classmethod
    def of(cls, features: Tensor, targets: Tensor, precision: Tensor) -> Self:
        """Return the posterior, given Φ `[P, M]`, v `[P, O]` and the diagonals of Λ, `[O, P]`."""
        gram, cross = per_output_statistics(features, targets, precision)
        named = "the precision of the inducing outputs"
        factor, inverse = cholesky_and_inverse(gram + identities(gram), named)
        return cls(merge_outputs(inverse.mT @ (inverse @ cross)), factor, inverse)

    @property
    def divergence(self) -> Tensor:
        """KL(Q ‖ N(0, Id)), nats."""
        log_det = self.factor.diagonal(dim1=-2, dim2=-1).log().sum()
        squares = self.inverse.square().sum() + self.mean.square().sum()
        return 0.5 * (squares - self.mean.numel()) + log_det

    def at(self, white: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance at points, `[O, N]`, from a(x) `[N, M]` and what it leaves, `[N]`."""
        return (white @ self.mean).mT, left + (self.inverse @ white.mT).square().sum(-2)


def features_of(inducing: Inducing, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a(x), `[N, M]`, and the prior variance that it leaves unexplained, `[N]`, in float64."""
    white = inducing.white(x.double())
    return white, inducing.kernel.diagonal(x.double()) - white.square().sum(-1)


def sums_of(
    inducing: Inducing, x: Tensor, y: Tensor, weights: Tensor, variance: Tensor | None = None
) -> Sums:
    """Compute the sums over inputs `[N, D]` and targets `[N, O]`; a row of weight w counts as w rows.

    Dividing features and targets by the root of the noise's variance, `[N]`, leaves noise of variance 1.
    """
    precision = weights if variance is None else weights / variance
    (white, left), root = features_of(inducing, x), precision.sqrt()[:, None]
    white, y = white * root, y.double() * root
    total = (left * precision).sum()
    return Sums(white.mT @ white, white.mT @ y, y.square().sum(0), total, weights.sum())


def collapsed(sums: Sums, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the bound, and the best q: its mean `[M, O]`, and T of its precision T Tᵀ, `[G, M, M]`."""
    outputs = len(sums.squares)
    precision = identities(sums.gram) + sums.gram / noise[:, None, None]
    factor = cholesky(precision, "the precision of the inducing outputs")
    moments = split_outputs(sums.moments, outputs // len(noise)) / noise[:, None, None]  # [G, M, C]
    white = torch.linalg.solve_triangular(factor, moments, upper=False)
    wide = noise.expand(outputs)
    squares = (sums.squares / wide).sum() - white.square().sum()
    log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum() * (outputs // len(noise))
    constant = 0.5 * sums.points * (wide.log() + LOG_2PI).sum()
    bound = -0.5 * squares - log_det - constant - 0.5 * (sums.left / wide).sum()
    mean = torch.linalg.solve_triangular(factor.mT, white, upper=True)
    return bound, merge_outputs(mean), factor


def weight_correction(noise: Tensor, weights: Tensor) -> Tensor:
    """Return w log N(y; f, σ²) - log N(y; f, σ²/w), which needs only σ² `[G, N]` and w `[N]`, `[G, N]`.

    Under Gaussian noise a row that counts w times is one row, whose noise has a w-th of the variance, plus

        ½ [(1 - w) log(2πσ²) - log w].
    """
    return 0.5 * ((1.0 - weights) * (noise.log() + LOG_2PI) - weights.log())


def evidence(gram: Tensor, y: Tensor, noise: Tensor, jitter: float, weights: Tensor) -> Tensor:
    """Return the bound if Z = X: log N(y; 0, K + σ²) - N jitter / (2σ²), with σ²/w for rows of weight w.

    This neglects what the jitter does to Q. The gradient ½ (ααᵀ - (K + σ²)⁻¹), with α = (K + σ²)⁻¹ y, is
    written out, so that one inverse replaces autograd's pass. The noise σ² is `[G]`, or `[G, N]`.
    """
    points, outputs = y.shape
    copies = outputs // len(noise)
    noise = noise if noise.dim() == 2 else noise[:, None].expand(-1, points)
    corrected, noise = weight_correction(noise, weights).sum(), noise / weights
    with torch.no_grad():
        factor = cholesky(gram + torch.diag_embed(noise), "the covariance of the targets")
        targets = split_outputs(y, copies)  # [G, N, C]
        solved = torch.cholesky_solve(targets, factor)
        log_det = copies * factor.diagonal(dim1=-2, dim2=-1).log().sum()
        value = -0.5 * (targets * solved).sum() - log_det - 0.5 * points * outputs * LOG_2PI
        slope = 0.5 * (solved @ solved.mT - copies * torch.cholesky_inverse(factor))
    # `linear - linear.detach()` is zero and has the gradient `slope`, with respect to K and the noise.
    linear = (slope.sum(0) * gram).sum() + (slope.diagonal(dim1=-2, dim2=-1) * noise).sum()
    nugget = jitter * gram.diagonal().mean()
    return value + linear - linear.detach() + copies * (corrected - 0.5 * (nugget / noise).sum())
