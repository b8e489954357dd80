"""Regression with unknown, correlated noise, averaged over minibatches: one factor of a joint matrix.

With Y = X W + ε, rows of ε ~ N(0, Σ), and the prior W | Σ ~ MN(0, V_0, Σ), Σ ~ IW(Ψ_0, ν_0), the posterior is
of the same family (Kurle et al., 2024, Eqs. 15, 16):

    V⁻¹ = V_0⁻¹ + XᵀX    M = V XᵀY    Ψ = Ψ_0 + YᵀY - MᵀV⁻¹M    ν = ν_0 + N.

That M is `gilib.regression.regress` from the same statistics. Minibatches enter as moving averages (Eq. 17),
for which the subtraction in Ψ is left out: it cancels. With P = V⁻¹, the residuals D = Y - X M at the old
mean, the factor c = N/B and the rate γ, one factorisation gives the new state, positive definite by
construction:

    J = (1-γ) diag(P, Ψ) + γ ([[V_0⁻¹, -V_0⁻¹M], [·, Ψ_0 + MᵀV_0⁻¹M]] + c [X D]ᵀ[X D]),
    chol(J) = [[T, 0], [K, C]]:    P ← J_xx = T Tᵀ    M ← M + T⁻ᵀKᵀ    Ψ ← C Cᵀ.

J is factorised by its blocks, T Tᵀ = J_xx, Kᵀ = T⁻¹J_xy, C Cᵀ = J_yy - K Kᵀ, and never put together: the
factor T of a wide layer is then one matrix in memory, which the next draw reads as it is.

Residuals may be taken at any A in place of M. What was seen before is then Tᵀ with residuals -S,
S = Tᵀ(A - M): (1-γ) [[P, -T S], [·, Ψ + SᵀS]] takes the place of the first term, and A that of M in the
others. At drawn weights A = M + T⁻ᵀS, S = E Gᵀ is the noise of the draw, G Gᵀ = Ψ / (ν + O + 1) the mode of
Σ. The residuals at A are those of what the network computed, without a product, and small where those at M
are not: features change from step to step, X (A - M) is large where V is, and in float32 nothing true would
be left of J_yy - K Kᵀ.

The new mean is not solved for, either. It is kept as A and S = -Kᵀ, which say it as M = A - T⁻ᵀS: the next
draw is A + T⁻ᵀ(E Gᵀ - S), one triangular solve for both.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gilib.linalg import cholesky, readable
from gilib.linalg.blocks import pieces
from gilib.linalg.products import matmul, plus_matmul
from gilib.regression.moments import STRIP, Residuals

__all__ = ["JointState", "Place", "averaged", "first_of", "over_axes", "precision_factor", "scale_factor"]

ROUNDING = (2.0, 20.0, 200.0)  # times I or (I + O) ε, one after the other, until a factor is found
WIDE = "features that are nearly dependent, under a wide prior; lower its scale, or take a float64 network"
PRECISION = "the precision of a layer's regression", WIDE
SCATTER = "the residual scatter of a layer's regression", WIDE


class JointState(NamedTuple):
    """What the averages are so far.

    Attributes:
        centre: A, `[R, I, O]`.
        precision: P, `[R, I, I]`; its upper triangle is not read.
        precision_tril: T, its Cholesky factor.
        scale_tril: C, that of Ψ, `[R, O, O]`.
        white: S = Tᵀ(A - M), `[R, I, O]`; zero where A is the mean.
    """

    centre: Tensor
    precision: Tensor
    precision_tril: Tensor
    scale_tril: Tensor
    white: Tensor

    @property
    def mean(self) -> Tensor:
        """M, `[R, I, O]`."""
        return self.centre - torch.linalg.solve_triangular(self.precision_tril.mT, self.white, upper=True)


class Place(NamedTuple):
    """Weights at which residuals are taken, such as drawn ones.

    Attributes:
        centre: A, `[R, I, O]`.
        white: S = Tᵀ(A - M), `[R, I, O]`, the noise in them; None: they are the mean.
    """

    centre: Tensor
    white: Tensor | None = None


def first_of(place: Place) -> Place:
    """Of places of samples, `[S, ...]`."""
    return Place(place.centre[0], None if place.white is None else place.white[0])


def averaged(
    state: JointState,
    batch: Residuals,
    prior_precision: Tensor,
    prior_scale: float,
    rate: float | Tensor,
    place: Place | None = None,
) -> JointState:
    """The state after a minibatch.

    Args:
        state: before it.
        batch: its moments; the Gram matrix becomes P in its place.
        prior_precision: the diagonal of V_0⁻¹, `[R, I]`.
        prior_scale: Ψ_0 = prior_scale · Id.
        rate: γ, a number or `[R]`; 1 for the first one.
        place: where the residuals of `batch` were taken; None: at the mean of `state`.

    Raises:
        FactorisationError: as `gilib.linalg.cholesky` does.

    >>> from gilib.regression import residuals
    >>> one = torch.ones(1, 1)
    >>> start = JointState(0 * one, one, one, one, 0 * one)
    >>> batch = residuals(torch.ones(3, 1), torch.ones(3, 1), start.mean, 1.0)
    >>> averaged(start, batch, torch.ones(1), 1.0, torch.tensor(1.0)).mean
    tensor([[0.7500]])
    """
    centre, noise = Place(state.mean) if place is None else place
    by_matrix, shrunk = over_axes(rate, 2), prior_precision[..., None] * centre
    precision = torch.lerp(state.precision, batch.gram, by_matrix, out=batch.gram)
    _add_to_diagonal(precision, rate, prior_precision)
    scatter, slope = state.scale_tril @ state.scale_tril.mT, shrunk - batch.cross
    if noise is None:
        slope = by_matrix * slope
    else:
        scatter = plus_matmul(scatter, noise.mT, noise)
        slope = torch.lerp(_lower_product(state.precision_tril, noise), slope, by_matrix)
    scatter = torch.lerp(scatter, plus_matmul(batch.scatter, centre.mT, shrunk), by_matrix)
    _add_to_diagonal(scatter, rate, prior_scale)
    precision, root = precision_factor(precision)
    white = torch.linalg.solve_triangular(root, slope, upper=False)  # -Kᵀ
    return JointState(centre, precision, root, scale_factor(scatter, white), white)


def over_axes(rate: float | Tensor, axes: int) -> float | Tensor:
    """A rate of each replica, to be multiplied with what has so many axes more."""
    return rate if isinstance(rate, float) else rate[(..., *[None] * axes)]


def _add_to_diagonal(matrix: Tensor, rate: float | Tensor, values: float | Tensor) -> None:
    """A multiple of values, in place."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    if isinstance(rate, float) and isinstance(values, Tensor):
        diagonal.add_(values, alpha=rate)
    else:
        diagonal.add_(over_axes(rate, 1) * values)


def _failed(info: Tensor) -> bool:
    """Whether a factorisation of a batch, or of one matrix, failed."""
    return bool(info.any() if info.dim() else info)


def precision_factor(precision: Tensor) -> tuple[Tensor, Tensor]:
    """P and its factor T, `[R, I, I]`.

    Where priors are wide, rounding of the Gram matrix exceeds V_0⁻¹, and may leave a negative eigenvalue. P
    then gets as much added to its diagonal. An accelerator, where no flag is read, is spared the attempts.
    """
    if not readable(precision):
        return precision, cholesky(precision, *PRECISION)
    factor, info = torch.linalg.cholesky_ex(precision)
    for times in ROUNDING:
        if not _failed(info):
            return precision, factor
        precision = _raised(precision, precision, times * precision.shape[-1], info)
        factor, info = torch.linalg.cholesky_ex(precision)
    return precision, cholesky(precision, *PRECISION)


def scale_factor(scatter: Tensor, white: Tensor) -> Tensor:
    """C, the factor of J_yy - K Kᵀ, `[R, O, O]`, given J_yy and -Kᵀ.

    Where features depend on each other, so do the gradients of hidden units. Nothing but Ψ_0 is left then of
    the difference in some directions, and in float32 less than its error, which is some (I + O) ε of J_yy's
    diagonal, more the worse T is conditioned. Replicas in which the factor fails for that get as much added.
    An accelerator tries all amounts: there no flag is read.
    """
    corner = plus_matmul(scatter, white.mT, white, weight=-1.0)
    factor, info = torch.linalg.cholesky_ex(corner)
    for times in ROUNDING:
        if readable(info) and not _failed(info):
            return factor
        corner = _raised(corner, scatter, times * sum(white.shape[-2:]), info)
        factor, info = torch.linalg.cholesky_ex(corner)
    return cholesky(corner, *SCATTER)


def _raised(matrix: Tensor, like: Tensor, roundings: float, info: Tensor) -> Tensor:
    """A matrix with so many roundings of another's diagonal added, where its factor failed."""
    unit = roundings * torch.finfo(matrix.dtype).eps * like.diagonal(dim1=-2, dim2=-1)
    return matrix + torch.diag_embed(unit * (info > 0)[..., None])


def _lower_product(factor: Tensor, values: Tensor) -> Tensor:
    """T S, some rows at a time, without the products by zero above the diagonal."""
    size = factor.shape[-1]
    if size <= STRIP:
        return factor @ values
    product = torch.empty_like(values)
    for rows in pieces(size, STRIP):
        product[..., rows, :] = matmul(factor[..., rows, : rows.stop], values[..., : rows.stop, :])
    return product
