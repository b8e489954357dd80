"""Bayesian linear regression for few pseudo-observations, through an M × M system.

`gilib.regression.regress` factorises the precision H = P + ΦᵀΛΦ of the weights, `[I, I]`. With fewer
pseudo-observations M than inputs I, the same posterior follows from a smaller matrix. Let P⁻¹ = P^-½ P^-½ᵀ,
B = Λ^½ᵀ Φ P^-½ and y = Λ^½ᵀ v, and factorise

    K = Id + B Bᵀ = R Rᵀ,        `[M, M]`, with no eigenvalue below 1.

The whitened weights have the covariance (Id + BᵀB)⁻¹ = Id - Bᵀ K⁻¹ B (Woodbury). A draw needs a square root
of this covariance, which has a closed form (the square-root filter of Andrews, 1968):

    Id - Bᵀ K⁻¹ B = E Eᵀ,        E = Id - Bᵀ R⁻ᵀ (R + Id)⁻¹ B.

A draw maps standard normals z `[I, O]` (as many as `regress` needs) to weights:

    u = R⁻¹ y,    h = (R + Id)⁻¹ B z,    a = R⁻ᵀ (u - h),    w = P^-½ (z + Bᵀ a).

Since Q(w) = P(w) N(v; Φw, Λ⁻¹) / N(v; 0, ΦP⁻¹Φᵀ + Λ⁻¹), and the residuals y - Λ^½ᵀΦw are a - h,

    log P(w) - log Q(w) = ½‖a - h‖² - ½‖u‖² - O Σ log diag R.

No I × I matrix is built, and no large sums over weights cancel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from gilib.linalg import SymmetricOperator, cholesky
from gilib.linalg.factor import identities
from gilib.regression.primal import DEPENDENT, merge_outputs, prior_log_prob, split_outputs


def regress_dual(
    features: Tensor, targets: Tensor, root: Tensor, prior_precision: SymmetricOperator
) -> DualWeightPosterior:
    """Return the posterior over weights w_o ~ N(0, P⁻¹) given few pseudo-observations v_o ~ N(Φ w_o, Λ_o⁻¹).

    Args:
        features: Φ, `[..., M, I]`.
        targets: pseudo-outputs V, `[..., M, O]`.
        root: √λ for diagonal Λ, `[..., M, 1]` shared by all outputs, or `[..., M, O]`. For a full Λ = L Lᵀ
            pass Lᵀ Φ, Lᵀ V and ones.
        prior_precision: P, an operator `[..., I, I]`.

    Returns:
        The `DualWeightPosterior`, which draws and scores weights `[..., I, O]`.

    >>> from gilib.linalg import ScaledIdentity
    >>> prior = ScaledIdentity(torch.tensor(1.0), 1)
    >>> regress_dual(torch.ones(3, 1), torch.ones(3, 1), torch.ones(3, 1), prior).mean
    tensor([[0.7500]])
    """
    white = prior_precision.whiten(features)
    inner = white @ white.mT  # Φ P⁻¹ Φᵀ, [..., M, M]
    rows = root.mT  # [..., G, M]
    gram = rows[..., :, None] * inner[..., None, :, :] * rows[..., None, :]
    return DualWeightPosterior(features, white, targets, root, gram, prior_precision)


@dataclass(frozen=True)
class DualWeightPosterior:
    """The posterior of `gilib.regression.WeightPosterior`, represented by the pseudo-observations.

    Attributes:
        features: Φ, `[..., M, I]`.
        white_features: Φ P^-½, `[..., M, I]`.
        targets: V, `[..., M, O]`.
        root: √λ, `[..., M, G]`; G is 1 or O.
        gram: B Bᵀ, `[..., G, M, M]`.
        prior_precision: P.
    """

    features: Tensor
    white_features: Tensor
    targets: Tensor
    root: Tensor
    gram: Tensor
    prior_precision: SymmetricOperator

    def draw(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights w, `[..., I, O]`, and log P(w) - log Q(w), `[...]`, nats, summed over the weights.

        Args:
            noise: standard normals, `[..., I, O]`; its leading axes include those of the features.
        """
        factor = self._factor()
        white_targets = self._white_targets(factor)  # u
        seen = self._split(self.root * (self.white_features @ noise))  # B z
        white_noise = solve_triangular(factor + identities(factor), seen, upper=False)  # h
        coefficients = solve_triangular(factor.mT, white_targets - white_noise, upper=True)  # a
        weights = self.prior_precision.sqrt_inv_matmul(noise + self._to_weights(coefficients))
        return weights, _log_ratio(factor, white_targets, coefficients - white_noise)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the regression."""
        return self.gram.dtype

    @property
    def mean(self) -> Tensor:
        """The mean P^-½ Bᵀ K⁻¹ y, `[..., I, O]`."""
        factor = self._factor()
        coefficients = solve_triangular(factor.mT, self._white_targets(factor), upper=True)
        return self.prior_precision.sqrt_inv_matmul(self._to_weights(coefficients))

    @property
    def covariance(self) -> Tensor:
        """The covariance P^-½ (Id - Bᵀ K⁻¹ B) P^-½ᵀ of each group of outputs, `[..., G, I, I]`."""
        rows = self.root.mT[..., None] * self.white_features[..., None, :, :]  # B, [..., G, M, I]
        rows = solve_triangular(self._factor(), rows, upper=False)
        inner = rows.mT @ rows
        return self._unwhiten(self._unwhiten(identities(inner) - inner).mT)

    def log_prob(self, weights: Tensor) -> Tensor:
        """Return log Q(w) of given `weights` `[..., I, O]`; `[...]`, nats, summed over the weights."""
        factor = self._factor()
        residuals = self._split(self.root * (self.targets - self.features @ weights))
        log_pq = _log_ratio(factor, self._white_targets(factor), residuals)
        return prior_log_prob(weights, self.prior_precision, weights.shape[-1]) - log_pq

    def _factor(self) -> Tensor:
        """Return R, `[..., G, M, M]`."""
        named = "Id + Λ^½ᵀ Φ P⁻¹ Φᵀ Λ^½ of the pseudo-outputs", DEPENDENT
        return cholesky(self.gram + identities(self.gram), *named)

    def _white_targets(self, factor: Tensor) -> Tensor:
        """Return u = R⁻¹ y, `[..., G, M, C]`."""
        return solve_triangular(factor, self._split(self.root * self.targets), upper=False)

    def _split(self, outputs: Tensor) -> Tensor:
        """Arrange outputs `[..., M, O]` in groups, `[..., G, M, C]`."""
        return split_outputs(outputs, outputs.shape[-1] // self.root.shape[-1])

    def _to_weights(self, coefficients: Tensor) -> Tensor:
        """Return Bᵀ a, `[..., I, O]`, for coefficients a, `[..., G, M, C]`."""
        return self.white_features.mT @ (self.root * merge_outputs(coefficients))

    def _unwhiten(self, blocks: Tensor) -> Tensor:
        """Multiply every block `[..., G, I, C]` by P^-½."""
        return split_outputs(self.prior_precision.sqrt_inv_matmul(merge_outputs(blocks)), blocks.shape[-1])


def _log_ratio(factor: Tensor, white_targets: Tensor, residuals: Tensor) -> Tensor:
    """Return ½‖y - Λ^½ᵀΦw‖² - ½‖u‖² - O Σ log diag R, `[...]` nats."""
    log_det = residuals.shape[-1] * factor.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
    fits = residuals.square().sum((-3, -2, -1)) - white_targets.square().sum((-3, -2, -1))
    return 0.5 * fits - log_det
