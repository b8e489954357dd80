"""The engine for few pseudo-observations: the same posterior through an M × M system.

`gilib.regression` factorises the precision H = P + ΦᵀΛΦ of the weights, `[I, I]`. With fewer
pseudo-observations M than inputs I the same Gaussian is reached from the other side. Let P⁻¹ = P^-½ P^-½ᵀ,
B = Λ^½ᵀ Φ P^-½ and y = Λ^½ᵀ v, and factorise

    K = Id + B Bᵀ = R Rᵀ,        `[M, M]`, with no eigenvalue below 1.

The whitened weights have the covariance (Id + BᵀB)⁻¹ = Id - Bᵀ K⁻¹ B (Woodbury). A draw needs a root of it,
and one can be written down (the square-root filter of Andrews, 1968):

    Id - Bᵀ K⁻¹ B = E Eᵀ,        E = Id - Bᵀ R⁻ᵀ (R + Id)⁻¹ B.

Standard normals z `[I, O]`, as many as the other route takes, become weights by

    u = R⁻¹ y,    h = (R + Id)⁻¹ B z,    a = R⁻ᵀ (u - h),    w = P^-½ (z + Bᵀ a).

Since Q(w) = P(w) N(v; Φw, Λ⁻¹) / N(v; 0, ΦP⁻¹Φᵀ + Λ⁻¹), and the residuals y - Λ^½ᵀΦw are a - h,

    log P(w) - log Q(w) = ½‖a - h‖² - ½‖u‖² - O Σ log diag R.

Nothing of size I × I is built, and no sums over all weights cancel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from gilib.linalg import SymmetricOperator, cholesky
from gilib.regression.primal import DEPENDENT, merge_outputs, prior_log_prob, split_outputs


def regress_dual(
    features: Tensor, targets: Tensor, root: Tensor, prior_precision: SymmetricOperator
) -> DualWeightPosterior:
    """The posterior over weights w_o ~ N(0, P⁻¹) given v_o ~ N(Φ w_o, Λ_o⁻¹), for few pseudo-observations.

    Args:
        features: Φ, `[..., M, I]`.
        targets: pseudo-outputs V, `[..., M, O]`.
        root: √λ for diagonal Λ, `[..., M, 1]` shared by all outputs or `[..., M, O]`. For a full Λ = L Lᵀ
            give Lᵀ Φ, Lᵀ V and ones.
        prior_precision: P, an operator `[..., I, I]`.

    Returns:
        The `DualWeightPosterior`, which draws and scores weights `[..., I, O]`.

    >>> from gilib.linalg import ScaledIdentity
    >>> prior = ScaledIdentity(torch.tensor(1.0), 1)
    >>> regress_dual(torch.ones(3, 1), torch.ones(3, 1), torch.ones(3, 1), prior).mean
    tensor([[0.7500]])
    """
    white = prior_precision.pull_back(features)
    inner = white @ white.mT  # Φ P⁻¹ Φᵀ, [..., M, M]
    rows = root.mT  # [..., G, M]
    gram = rows[..., :, None] * inner[..., None, :, :] * rows[..., None, :]
    return DualWeightPosterior(features, white, targets, root, gram, prior_precision)


@dataclass(frozen=True)
class DualWeightPosterior:
    """The Gaussian of `gilib.regression.WeightPosterior`, held by what it does to the pseudo-observations.

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
        """Weights and log P(w) - log Q(w) (nats, summed over the weights).

        Args:
            noise: standard normals, `[..., I, O]`; its leading axes contain those of the features.

        Returns:
            weights `[..., I, O]` and log_pq `[...]`.
        """
        factor = self._factor()
        white_targets = self._white_targets(factor)  # u
        seen = self._split(self.root * (self.white_features @ noise))  # B z
        white_noise = solve_triangular(factor + _identity_like(factor), seen, upper=False)  # h
        coefficients = solve_triangular(factor.mT, white_targets - white_noise, upper=True)  # a
        weights = self.prior_precision.colour(noise + self._to_weights(coefficients))
        return weights, _log_ratio(factor, white_targets, coefficients - white_noise)

    @property
    def dtype(self) -> torch.dtype:
        """The arithmetic of the regression."""
        return self.gram.dtype

    @property
    def mean(self) -> Tensor:
        """The mean P^-½ Bᵀ K⁻¹ y, `[..., I, O]`."""
        factor = self._factor()
        coefficients = solve_triangular(factor.mT, self._white_targets(factor), upper=True)
        return self.prior_precision.colour(self._to_weights(coefficients))

    @property
    def covariance(self) -> Tensor:
        """P^-½ (Id - Bᵀ K⁻¹ B) P^-½ᵀ, `[..., G, I, I]`: one matrix for each group of outputs."""
        rows = self.root.mT[..., None] * self.white_features[..., None, :, :]  # B, [..., G, M, I]
        rows = solve_triangular(self._factor(), rows, upper=False)
        inner = rows.mT @ rows
        return self._colour(self._colour(_identity_like(inner) - inner).mT)

    def log_prob(self, weights: Tensor) -> Tensor:
        """Log Q(w) of given `weights` `[..., I, O]` (nats, summed); `[...]`."""
        factor = self._factor()
        residuals = self._split(self.root * (self.targets - self.features @ weights))
        log_pq = _log_ratio(factor, self._white_targets(factor), residuals)
        return prior_log_prob(weights, self.prior_precision, weights.shape[-1]) - log_pq

    def _factor(self) -> Tensor:
        """R, `[..., G, M, M]`."""
        named = "Id + Λ^½ᵀ Φ P⁻¹ Φᵀ Λ^½ of the pseudo-outputs", DEPENDENT
        return cholesky(self.gram + _identity_like(self.gram), *named)

    def _white_targets(self, factor: Tensor) -> Tensor:
        """u = R⁻¹ y, `[..., G, M, C]`."""
        return solve_triangular(factor, self._split(self.root * self.targets), upper=False)

    def _split(self, outputs: Tensor) -> Tensor:
        """`[..., M, O]` as `[..., G, M, C]`."""
        return split_outputs(outputs, outputs.shape[-1] // self.root.shape[-1])

    def _to_weights(self, coefficients: Tensor) -> Tensor:
        """Bᵀ a, `[..., I, O]`, of a `[..., G, M, C]`."""
        return self.white_features.mT @ (self.root * merge_outputs(coefficients))

    def _colour(self, blocks: Tensor) -> Tensor:
        """P^-½ times every one of `blocks` `[..., G, I, C]`."""
        return split_outputs(self.prior_precision.colour(merge_outputs(blocks)), blocks.shape[-1])


def _log_ratio(factor: Tensor, white_targets: Tensor, residuals: Tensor) -> Tensor:
    """½‖y - Λ^½ᵀΦw‖² - ½‖u‖² - O Σ log diag R, `[...]` nats."""
    log_det = residuals.shape[-1] * factor.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
    fits = residuals.square().sum((-3, -2, -1)) - white_targets.square().sum((-3, -2, -1))
    return 0.5 * fits - log_det


def _identity_like(matrix: Tensor) -> Tensor:
    """Id, `[n, n]`, of the kind of `matrix` `[..., n, n]`."""
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
