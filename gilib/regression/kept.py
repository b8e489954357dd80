"""Regression as in `gilib.regression.joint`, of inputs whose second moments are known and never change.

Where XᵀX of all points is known, V⁻¹ = V_0⁻¹ + XᵀX is factored once, and a minibatch is asked for cross
moments and residuals alone. Put together as one matrix those would be the moments of no data: the corner that
is left of it need not be positive. Written out, it is: with the factor V⁻¹ = T Tᵀ, residuals D at
A = M + T⁻ᵀS, the factor c = N/B and the rate γ,

    w = γ (S + T⁻¹(c XᵀD - V_0⁻¹A)),    M' = M + T⁻ᵀw = A + δ,    δ = T⁻ᵀ(w - S),
    Ψ' = (1-γ) (Ψ + wᵀw) + γ (Ψ_0 + M'ᵀV_0⁻¹M' + c (D - X δ)ᵀ(D - X δ)),

a sum of squares. With all points in the minibatch it is the posterior in closed form. With fewer Ψ is larger
than that of the minibatch's own moments, which fit its own residuals best.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gilib.linalg.products import matmul
from gilib.linalg.triangular import inverse_of_lower
from gilib.regression.joint import JointState, Place, over_axes, precision_factor, scale_factor

__all__ = ["Inverse", "averaged_with", "factored", "inverse_of"]


def factored(gram: Tensor, prior_precision: Tensor) -> tuple[Tensor, Tensor]:
    """V⁻¹ = V_0⁻¹ + XᵀX and its factor T, `[R, I, I]`.

    Args:
        gram: XᵀX, `[R, I, I]`; its upper triangle is not read.
        prior_precision: the diagonal of V_0⁻¹, `[R, I]`.

    Raises:
        FactorisationError: as `gilib.linalg.cholesky` does.
    """
    return precision_factor(gram + torch.diag_embed(prior_precision))


class Inverse(NamedTuple):
    """T⁻¹ and T⁻ᵀ, each dense in memory: a product with them is faster than solving with T."""

    lower: Tensor
    upper: Tensor


@torch.inference_mode(False)
def inverse_of(tril: Tensor) -> Inverse:
    """Of T, `[R, I, I]`."""
    found = inverse_of_lower(tril.reshape(-1, *tril.shape[-2:])).reshape(tril.shape)
    return Inverse(found, found.mT.contiguous())


def averaged_with(
    state: JointState,
    inverse: Inverse,
    cross: Tensor,
    prior_precision: Tensor,
    prior_scale: float,
    rate: float | Tensor,
    place: Place,
    scatter: Callable[[Tensor], Tensor],
) -> JointState:
    """The state after a minibatch.

    Args:
        state: before it, in which V⁻¹ is that of all points already.
        inverse: of its factor.
        cross: c XᵀD, `[R, I, O]`.
        prior_precision: the diagonal of V_0⁻¹, `[R, I]`.
        prior_scale: Ψ_0 = prior_scale · Id.
        rate: γ, a number or `[R]`; 1 for the first one.
        place: where the residuals were taken, S being by that T; without S, at the mean.
        scatter: δ ↦ c (D - X δ)ᵀ(D - X δ), `[R, O, O]`.

    Raises:
        FactorisationError: as `gilib.linalg.cholesky` does.
    """
    by_matrix, (centre, noise) = over_axes(rate, 2), place
    noise = torch.zeros_like(centre) if noise is None else noise
    slope = matmul(inverse.lower, torch.addcmul(cross, prior_precision[..., None], centre, value=-1.0))
    white = by_matrix * (noise + slope)
    step = matmul(inverse.upper, white - noise)
    mean = centre + step
    seen = state.scale_tril @ state.scale_tril.mT + matmul(white.mT, white)
    new = scatter(step) + matmul(mean.mT, prior_precision[..., None] * mean)
    total = torch.lerp(seen, new, by_matrix)
    total.diagonal(dim1=-2, dim2=-1).add_(over_axes(rate, 1) * prior_scale)
    scale_tril = scale_factor(total, torch.zeros_like(white[..., :0, :]))
    return state._replace(centre=mean, scale_tril=scale_tril, white=torch.zeros_like(mean))
