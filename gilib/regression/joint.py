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
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gilib.linalg import cholesky
from gilib.linalg.blocks import pieces

__all__ = ["JointState", "Residuals", "averaged", "residuals"]

ROWS = 192  # of a Gram matrix at a time: at I = 785, three fifths of the arithmetic of all of it


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
    left = targets - features @ (scale * mean)
    return Residuals(
        _lower_gram(features).mul_(weight * scale**2),
        (features.mT @ left).mul_(weight * scale),
        (left.mT @ left).mul_(weight),
    )


def _lower_gram(features: Tensor) -> Tensor:
    """The lower triangle of XᵀX, some of its rows at a time, and zeros where nothing is written."""
    size = features.shape[-1]
    gram = features.new_empty(*features.shape[:-2], size, size)
    for rows in pieces(size, ROWS):
        gram[..., rows, : rows.stop] = features[..., rows].mT @ features[..., : rows.stop]
        gram[..., rows, rows.stop :] = 0.0
    return gram


def averaged(
    state: JointState, batch: Residuals, prior_precision: Tensor, prior_scale: float, rate: Tensor
) -> JointState:
    """The state after a minibatch.

    Args:
        state: before it.
        batch: its moments, taken at the mean of `state`; the Gram matrix becomes P in its place.
        prior_precision: the diagonal of V_0⁻¹, `[R, I]`.
        prior_scale: Ψ_0 = prior_scale · Id.
        rate: γ, `[R]`, 1 for the first one.

    Raises:
        FactorisationError: as `gilib.linalg.cholesky` does.

    >>> one = torch.ones(1, 1)
    >>> start = JointState(0 * one, one, one, one)
    >>> batch = residuals(torch.ones(3, 1), torch.ones(3, 1), start.mean, 1.0)
    >>> averaged(start, batch, torch.ones(1), 1.0, torch.tensor(1.0)).mean
    tensor([[0.7500]])
    """
    rate = rate[..., None, None]
    shrunk = prior_precision[..., None] * state.mean
    precision = torch.lerp(state.precision, batch.gram, rate, out=batch.gram)
    precision.diagonal(dim1=-2, dim2=-1).add_(rate[..., 0] * prior_precision)
    scatter = torch.lerp(state.scale_tril @ state.scale_tril.mT, batch.scatter + state.mean.mT @ shrunk, rate)
    scatter.diagonal(dim1=-2, dim2=-1).add_(rate[..., 0] * prior_scale)
    root = cholesky(precision, "the precision of a layer's regression")
    below = torch.linalg.solve_triangular(root, rate * (batch.cross - shrunk), upper=False)  # Kᵀ
    step = torch.linalg.solve_triangular(root.mT, below, upper=True)
    scale_tril = cholesky(scatter - below.mT @ below, "the residual scatter of a layer's regression")
    return JointState(state.mean + step, precision, root, scale_tril)
