"""The conjugate prior of a regression with correlated noise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import StudentT

from gilib.distributions.matrix_normal import MatrixNormal
from gilib.distributions.wishart import InverseWishart
from gilib.linalg import cholesky


class MatrixNormalInverseWishart:
    """The conjugate prior or posterior of weights W and noise covariance Σ in a regression.

        Σ ~ IW(Ψ, ν),    W | Σ ~ MN(M, V, Σ)                              (Kurle et al., 2024, Eq. 14)

    Args:
        loc: M, `[..., I, O]`.
        row_precision_tril: Cholesky factor of V⁻¹, `[..., I, I]`.
        df: ν > O - 1, a number or `[...]`.
        scale_tril: Cholesky factor of Ψ, `[..., O, O]`.
        validate_args: as in `torch.distributions`.

    Attributes:
        noise: the distribution IW(Ψ, ν) of Σ.

    Raises:
        ValueError: for the reasons of `MatrixNormal` and `InverseWishart`.

    >>> eye = torch.eye(2)
    >>> pair = MatrixNormalInverseWishart(torch.zeros(3, 2), torch.eye(3), 5.0, eye)
    >>> weights, covariance = pair.rsample((4,))
    >>> pair.log_prob(weights, covariance).shape
    torch.Size([4])
    """

    def __init__(
        self,
        loc: Tensor,
        row_precision_tril: Tensor,
        df: Tensor | float,
        scale_tril: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        self.noise = InverseWishart(df, scale_tril=scale_tril, validate_args=validate_args)
        self.validate_args = validate_args
        self.loc, self.row_precision_tril = loc, row_precision_tril
        self.batch_shape = self.given(self.noise.scale_tril).batch_shape

    def given(self, covariance_tril: Tensor) -> MatrixNormal:
        """Return the distribution of W given the Cholesky factor of Σ, `[..., O, O]`."""
        return MatrixNormal(
            self.loc,
            column_scale_tril=covariance_tril,
            row_precision_tril=self.row_precision_tril,
            validate_args=self.validate_args,
        )

    @property
    def mean(self) -> tuple[Tensor, Tensor]:
        """The means M and Ψ / (ν-O-1); the latter is NaN for ν ≤ O + 1."""
        return self.loc, self.noise.mean

    @property
    def mode(self) -> tuple[Tensor, Tensor]:
        """The mode of the joint density, M and Ψ / (ν+O+1+I)."""
        size = self.noise.size
        total = self.noise.df + size + 1 + self.loc.shape[-2]
        return self.loc, self.noise.scale / total[..., None, None]

    def predictive(self, features: Tensor) -> StudentT:
        """Return the distribution of each output of y = xᵀW + ε, ε ~ N(0, Σ), with W and Σ integrated out.

            y_o ~ t(ν - O + 1), of location (xᵀM)_o and squared scale (1 + xᵀVx) Ψ_oo / (ν - O + 1)

        These are marginals of single points and outputs, `[..., N, O]`, for features x, `[..., N, I]`.
        """
        white = torch.linalg.solve_triangular(self.row_precision_tril, features.mT, upper=False)
        spread = 1.0 + white.square().sum(-2)[..., None]
        df = (self.noise.df - self.noise.size + 1)[..., None, None]
        scale = self.noise.scale.diagonal(dim1=-2, dim2=-1)[..., None, :]
        loc = features @ self.loc
        return StudentT(df, loc, (spread * scale / df).sqrt(), validate_args=False)  # which broadcasts

    def rsample(
        self,
        sample_shape: Sequence[int] = (),
        noise: tuple[Tensor, Tensor] | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw pairs, differentiable in all parameters.

        Args:
            sample_shape: leading axes of the draw.
            noise: standard normals for W `[*sample_shape, *batch, I, O]` and for Σ `[..., O, O]` (see
                `InverseWishart.rsample_cholesky`); drawn if None.
            generator: source of the noise, if it is drawn.

        Returns:
            W, `[*sample_shape, *batch, I, O]`, and Σ, `[*sample_shape, *batch, O, O]`.
        """
        of_weights, of_covariance = (None, None) if noise is None else noise
        expanded = self.noise.expand(self.batch_shape)
        factor = expanded.rsample_cholesky(sample_shape, of_covariance, generator)
        weights = self.given(factor).rsample((), of_weights, generator)
        return weights, factor @ factor.mT

    def log_prob(self, weights: Tensor, covariance: Tensor) -> Tensor:
        """Return log densities `[...]`, nats, of W `[..., I, O]` and distinct entries of Σ `[..., O, O]`."""
        factor = cholesky(covariance, "the covariance")
        return self.noise.log_prob_cholesky(factor) + self.given(factor).log_prob(weights)
