"""Regression with unknown, correlated noise, averaged over minibatches: one factor of a joint matrix.

With Y = X W + ε, rows of ε ~ N(0, Σ), and the prior W | Σ ~ MN(0, V_0, Σ), Σ ~ IW(Ψ_0, ν_0), the posterior is
of the same family (Kurle et al., 2024, Eqs. 15, 16):

    V⁻¹ = V_0⁻¹ + XᵀX    M = V XᵀY    Ψ = Ψ_0 + YᵀY - MᵀV⁻¹M    ν = ν_0 + N.

That M is `gilib.regress` from the same statistics. Minibatches enter as moving averages (Eq. 17), for which
the subtraction in Ψ is left out: it cancels. With P = V⁻¹, the residuals D = Y - X M at the old mean, the
factor c = N/B and the rate γ, one factorisation gives the new state, positive definite by construction:

    J = (1-γ) diag(P, Ψ) + γ ([[V_0⁻¹, -V_0⁻¹M], [·, Ψ_0 + MᵀV_0⁻¹M]] + c [X D]ᵀ[X D]),
    chol(J) = [[T, 0], [K, C]]:    P ← J_xx = T Tᵀ    M ← M + T⁻ᵀKᵀ    Ψ ← C Cᵀ.
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


def residuals(features: Tensor, targets: Tensor, mean: Tensor, weight: float) -> Residuals:
    """The moments of a minibatch.

    Args:
        features: X, `[R, B, I]`.
        targets: Y, `[R, B, O]`.
        mean: M, `[R, I, O]`, at which the residuals are taken.
        weight: c.
    """
    left = targets - features @ mean
    return Residuals(
        _lower_gram(features).mul_(weight), weight * (features.mT @ left), weight * (left.mT @ left)
    )


def _lower_gram(features: Tensor) -> Tensor:
    """The lower triangle of XᵀX, some of its rows at a time."""
    size = features.shape[-1]
    gram = features.new_zeros(*features.shape[:-2], size, size)
    for rows in pieces(size, ROWS):
        gram[..., rows, : rows.stop] = features[..., rows].mT @ features[..., : rows.stop]
    return gram


def averaged(
    state: JointState, batch: Residuals, prior_precision: Tensor, prior_scale: float, rate: Tensor
) -> JointState:
    """The state after a minibatch.

    Args:
        state: before it.
        batch: its moments, taken at the mean of `state`.
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
    mean, inputs = state.mean, state.mean.shape[-2]
    rate = rate[..., None, None]
    shrunk = prior_precision[..., None] * mean
    joint = mean.new_zeros(*mean.shape[:-2], sum(mean.shape[-2:]), sum(mean.shape[-2:]))
    torch.lerp(state.precision, batch.gram, rate, out=joint[..., :inputs, :inputs])
    joint[..., inputs:, :inputs] = rate * (batch.cross - shrunk).mT
    joint[..., inputs:, inputs:] = torch.lerp(
        state.scale_tril @ state.scale_tril.mT, batch.scatter + mean.mT @ shrunk, rate
    )
    diagonal = joint.diagonal(dim1=-2, dim2=-1)
    diagonal[..., :inputs] += rate[..., 0] * prior_precision
    diagonal[..., inputs:] += rate[..., 0] * prior_scale
    factor = cholesky(joint, "the precision of a layer's regression")
    root, below = factor[..., :inputs, :inputs], factor[..., inputs:, :inputs]
    step = torch.linalg.solve_triangular(root.mT, below.mT, upper=True)
    return JointState(mean + step, joint[..., :inputs, :inputs], root, factor[..., inputs:, inputs:])
