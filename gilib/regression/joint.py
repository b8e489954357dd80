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
others. At drawn weights A = M + T⁻ᵀE Cᵀ, S is the noise E Cᵀ of the draw. The residuals at A are those of
what the network computed, without a product, and small where those at M are not: features change from step to
step, X (A - M) is large where V is, and in float32 nothing true would be left of J_yy - K Kᵀ.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gilib.linalg import cholesky
from gilib.linalg.blocks import pieces

__all__ = ["DrawnAt", "JointState", "Residuals", "averaged", "moments", "residuals"]

LEAF = 128  # the largest Gram matrix that is computed whole: at I = 785, 9/16 of the arithmetic of all of it


class JointState(NamedTuple):
    """What the averages are so far.

    Attributes:
        mean: M, `[R, I, O]`.
        precision: P, `[R, I, I]`; its upper triangle is not read.
        precision_tril: T, its Cholesky factor.
        scale_tril: C, that of Ψ, `[R, O, O]`.
    """

    mean: Tensor
    precision: Tensor
    precision_tril: Tensor
    scale_tril: Tensor


class Residuals(NamedTuple):
    """Second moments of features and residuals.

    Attributes:
        gram: c XᵀX, `[R, I, I]`; its upper triangle is not filled.
        cross: c XᵀD, `[R, I, O]`.
        scatter: c DᵀD, `[R, O, O]`.
    """

    gram: Tensor
    cross: Tensor
    scatter: Tensor


class DrawnAt(NamedTuple):
    """Weights that were drawn, and the noise in them.

    Attributes:
        centre: A = M + T⁻ᵀS, `[R, I, O]`.
        white: S, `[R, I, O]`.
    """

    centre: Tensor
    white: Tensor


def residuals(
    features: Tensor, targets: Tensor, mean: Tensor, weight: float, scale: float = 1.0
) -> Residuals:
    """The moments of a minibatch.

    Args:
        features: X / scale, `[R, B, I]`.
        targets: Y, `[R, B, O]`.
        mean: M, `[R, I, O]`, at which the residuals are taken.
        weight: c.
        scale: of the features, which enters where matrices are small.
    """
    return moments(features, targets - features @ (scale * mean), weight, scale)


def moments(features: Tensor, left: Tensor, weight: float, scale: float = 1.0) -> Residuals:
    """The moments of a minibatch whose residuals D are known, `left` `[R, B, O]`; the rest as above."""
    return Residuals(
        _lower_gram(features).mul_(weight * scale**2),
        (features.mT @ left).mul_(weight * scale),
        (left.mT @ left).mul_(weight),
    )


def _lower_gram(features: Tensor) -> Tensor:
    """The lower triangle of XᵀX; above it, zeros or the other half of a block that is small."""
    size = features.shape[-1]
    if size <= LEAF:
        return features.mT @ features
    gram = features.new_zeros(*features.shape[:-2], size, size)
    _fill_lower_gram(features, gram)
    return gram


def _fill_lower_gram(features: Tensor, gram: Tensor) -> None:
    """By halves: one product for the block between them, and each of them again."""
    size = features.shape[-1]
    if size <= LEAF:
        torch.matmul(features.mT, features, out=gram)
        return
    half = (size // 2 + 15) // 16 * 16
    first, second = features[..., :half], features[..., half:]
    torch.matmul(second.mT, first, out=gram[..., half:, :half])
    _fill_lower_gram(first, gram[..., :half, :half])
    _fill_lower_gram(second, gram[..., half:, half:])


def averaged(
    state: JointState,
    batch: Residuals,
    prior_precision: Tensor,
    prior_scale: float,
    rate: Tensor,
    drawn: DrawnAt | None = None,
) -> JointState:
    """The state after a minibatch.

    Args:
        state: before it.
        batch: its moments; the Gram matrix becomes P in its place.
        prior_precision: the diagonal of V_0⁻¹, `[R, I]`.
        prior_scale: Ψ_0 = prior_scale · Id.
        rate: γ, `[R]`, 1 for the first one.
        drawn: where the residuals of `batch` were taken; None: at the mean of `state`.

    Raises:
        FactorisationError: as `gilib.linalg.cholesky` does.

    >>> one = torch.ones(1, 1)
    >>> start = JointState(0 * one, one, one, one)
    >>> batch = residuals(torch.ones(3, 1), torch.ones(3, 1), start.mean, 1.0)
    >>> averaged(start, batch, torch.ones(1), 1.0, torch.tensor(1.0)).mean
    tensor([[0.7500]])
    """
    rate, centre = rate[..., None, None], state.mean if drawn is None else drawn.centre
    shrunk = prior_precision[..., None] * centre
    precision = torch.lerp(state.precision, batch.gram, rate, out=batch.gram)
    precision.diagonal(dim1=-2, dim2=-1).add_(rate[..., 0] * prior_precision)
    scatter, cross = state.scale_tril @ state.scale_tril.mT, rate * (batch.cross - shrunk)
    if drawn is not None:
        scatter = scatter + drawn.white.mT @ drawn.white
        cross = cross - (1.0 - rate) * _lower_product(state.precision_tril, drawn.white)
    scatter = torch.lerp(scatter, batch.scatter + centre.mT @ shrunk, rate)
    scatter.diagonal(dim1=-2, dim2=-1).add_(rate[..., 0] * prior_scale)
    root = cholesky(precision, "the precision of a layer's regression")
    below = torch.linalg.solve_triangular(root, cross, upper=False)  # Kᵀ
    step = torch.linalg.solve_triangular(root.mT, below, upper=True)
    scale_tril = cholesky(scatter - below.mT @ below, "the residual scatter of a layer's regression")
    return JointState(centre + step, precision, root, scale_tril)


def _lower_product(factor: Tensor, values: Tensor) -> Tensor:
    """T S, some rows at a time, without the products by zero above the diagonal."""
    size = factor.shape[-1]
    if size <= LEAF:
        return factor @ values
    product = torch.empty_like(values)
    for rows in pieces(size, LEAF):
        product[..., rows, :] = factor[..., rows, : rows.stop] @ values[..., : rows.stop, :]
    return product
