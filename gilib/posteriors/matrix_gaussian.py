"""The matrix Gaussian posterior, whose weights are correlated over inputs and over outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Positive
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.posteriors.free import half_log_det, multiple_of_identity
from gilib.regression.primal import LOG_2PI, prior_log_prob
from gilib.sites import Site


@dataclass(frozen=True)
class MatrixGaussian(Posterior):
    """Q(W) = MN(W; M, V, Σ) with covariances V over inputs and Σ over outputs (Louizos & Welling, 2016).

        W = M + L E Kᵀ,  E standard normal,  V = L Lᵀ,  Σ = K Kᵀ;    Cov(W_io, W_jp) = V_ij Σ_op.

    `gilib.Adam` trains M, L and K on the ELBO; `NoisyKFAC` computes them instead. M starts as a draw from
    NealPrior, V and Σ as multiples of the identity.

    Args:
        initial_variance: the variances of the weights start at `initial_variance / √I`.

    >>> MatrixGaussian().initial_variance
    0.001
    """

    short_name: ClassVar[str] = "mvg"
    initial_variance: Positive = 1e-3

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        return MatrixGaussianWeights(self, site, context)


class MatrixGaussianWeights(PosteriorModule):
    """Parameters of a matrix Gaussian.

    Attributes:
        scaled_mean: √I M, `[R, I, O]`.
        row_root: L, `[R, I, I]`; only the lower triangle is used.
        column_root: K, `[R, O, O]`; only the lower triangle is used.
    """

    def __init__(self, spec: MatrixGaussian, site: Site, context: BuildContext):
        super().__init__()
        fan_in, outputs = site.fan_in, site.outputs
        self.noise_size, self.root_fan_in = fan_in * outputs, site.scale
        self.scaled_mean = nn.Parameter(context.normal(fan_in, outputs))
        scale = math.sqrt(spec.initial_variance / self.root_fan_in)
        self.row_root = nn.Parameter(multiple_of_identity(scale, (fan_in,), context))
        self.column_root = nn.Parameter(multiple_of_identity(1.0, (outputs,), context))

    @property
    def mean(self) -> Tensor:
        """M, the mean of W, `[R, I, O]`."""
        return self.scaled_mean / self.root_fan_in

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """Set the mean to `weights`; the covariances stay as they are."""
        self.scaled_mean.copy_(weights * self.root_fan_in)

    @torch.no_grad()
    def assign(self, mean: Tensor, row_root: Tensor, column_root: Tensor) -> None:
        """Set M, L and K, for training rules that compute them."""
        self.scaled_mean.copy_(mean * self.root_fan_in)
        self.row_root.copy_(row_root)
        self.column_root.copy_(column_root)

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        noise = noise.unflatten(-1, self.scaled_mean.shape[-2:])
        inputs, outputs = noise.shape[-2:]
        weights = self.mean + self.row_root.tril() @ noise @ self.column_root.tril().mT
        rows, columns = (half_log_det(root[..., None, :, :]) for root in (self.row_root, self.column_root))
        half = outputs * rows + inputs * columns
        log_q = -0.5 * (noise.square().sum((-2, -1)) + inputs * outputs * LOG_2PI) - half
        return weights, prior_log_prob(weights, prior_precision, outputs) - log_q
