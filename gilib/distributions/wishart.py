"""Wishart and inverse Wishart distributions with real degrees of freedom, drawn from standard normals.

Ober & Aitchison (2021), App. D, write Bartlett's decomposition with an UPPER triangular T (Eq. 47), where
T_jj² ~ Gamma((ν-j+1)/2, ½) (Eq. 48), and Σ is TᵀT, the product with the volume element ∏_j T_jj^{m-j+1}
(Eq. 55). This file uses the LOWER triangular transpose: then T Tᵀ ~ W(Id, ν), and T is the Cholesky factor of
the draw.

For AᵀA ~ W(Id, ν) with A lower triangular, the order of the degrees of freedom is reversed:
A_jj² ~ Gamma((ν-p+j)/2, ½). With Ψ = C Cᵀ, X = C⁻ᵀ AᵀA C⁻¹ ~ W(Ψ⁻¹, ν), hence
X⁻¹ = (C A⁻¹)(C A⁻¹)ᵀ ~ IW(Ψ, ν). C A⁻¹ is lower triangular, so it is the Cholesky factor of the draw, and no
matrix is inverted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl

from gilib.distributions.gamma import log_gamma_from_normal
from gilib.distributions.matrix_normal import FromNormals, one_of
from gilib.linalg import cholesky
from gilib.linalg.factor import tril_logdet


class WishartFamily(FromNormals, ABC):
    """A distribution over positive definite matrices with real degrees of freedom and a scale matrix."""

    support = constraints.positive_definite

    def __init__(
        self,
        df: Tensor | float,
        scale: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        matrix = _one_matrix(scale, scale_tril)
        size = matrix.shape[-1]
        floating = isinstance(df, Tensor) and df.is_floating_point()
        df = torch.as_tensor(df, dtype=None if floating else matrix.dtype, device=matrix.device)
        batch_shape = _batch_shape(df, matrix)
        validate = Distribution._validate_args if validate_args is None else validate_args
        if validate:
            _check_df(df, size)
            _check_matrix(matrix, triangular=scale is None)
        factor = matrix if scale is None else cholesky(matrix, "the scale matrix")
        self.df = df.expand(batch_shape)
        self.scale_tril = factor.expand(*batch_shape, size, size)
        super().__init__(batch_shape, torch.Size((size, size)), validate_args=False)
        self._validate_args = validate

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """`df` exceeds p - 1, and `scale_tril` is a Cholesky factor."""
        return {"df": constraints.greater_than(self.size - 1), "scale_tril": constraints.lower_cholesky}

    @property
    def scale(self) -> Tensor:
        """The scale matrix, `[*batch, p, p]`."""
        return self.scale_tril @ self.scale_tril.mT

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """Return this distribution with a larger batch shape, without copying the parameters."""
        df = self.df.expand(torch.Size(batch_shape))
        new = type(self)(df, scale_tril=self.scale_tril, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def rsample(
        self,
        sample_shape: Sequence[int] = (),
        noise: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw matrices, differentiable in both parameters; arguments as for `rsample_cholesky`."""
        factor = self.rsample_cholesky(sample_shape, noise, generator)
        return factor @ factor.mT

    def rsample_cholesky(
        self,
        sample_shape: Sequence[int] = (),
        noise: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw the lower Cholesky factors of matrices, differentiable in both parameters.

        Args:
            sample_shape: leading axes of the draw.
            noise: standard normals `[*sample_shape, *batch, p, p]`; drawn if None. Those below the diagonal
                are used directly, those on it through the Gamma quantile function, the others not at all.
            generator: source of the noise, if it is drawn.

        Returns:
            `[*sample_shape, *batch, p, p]`.

        Raises:
            ValueError: if the noise has the wrong shape.
        """
        return self._from_normals(self._normals(sample_shape, noise, generator, self.scale_tril))

    @abstractmethod
    def _from_normals(self, noise: Tensor) -> Tensor:
        """Return the Cholesky factors that belong to this noise."""

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density (nats) of `value` `[..., p, p]` over its p(p+1)/2 distinct entries."""
        if self._validate_args:
            self._validate_sample(value)
        return self.log_prob_cholesky(cholesky(value, "the value"))

    @abstractmethod
    def log_prob_cholesky(self, factor: Tensor) -> Tensor:
        """Return the log density (nats) of the matrix, not of its Cholesky factor `factor` `[..., p, p]`."""

    @property
    def size(self) -> int:
        """p, the number of rows and of columns."""
        return self.event_shape[-1]

    @property
    def column_df(self) -> Tensor:
        """Half the degrees of freedom of each column, (ν - j + 1) / 2 for j from 1 to p, `[*batch, p]`."""
        return (self.df[..., None] - torch.arange(self.size, dtype=self.df.dtype, device=self.df.device)) / 2

    @property
    def log_norm(self) -> Tensor:
        """Log normaliser for a unit scale, (νp/2) log 2 + log Γ_p(ν/2) (Eqs. 64-65)."""
        p = self.size
        log_gamma = torch.lgamma(self.column_df).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)
        return self.df * (p / 2 * math.log(2)) + log_gamma

    def _check_factor(self, factor: Tensor) -> None:
        """If arguments are validated, raise an error unless `factor` holds lower Cholesky factors."""
        if not self._validate_args:
            return
        if factor.shape[-2:] != self.event_shape or not bool(constraints.lower_cholesky.check(factor).all()):
            raise ValueError(
                f"factor must hold lower triangular matrices [..., {self.size}, {self.size}] with positive "
                f"diagonals, got shape {list(factor.shape)}; use log_prob for the matrices themselves"
            )


class Wishart(WishartFamily):
    """The Wishart distribution W(V, ν) over p × p positive definite matrices, with real ν.

    The density (Ober & Aitchison, 2021, Eq. 65, there for V = Id) and the mean are

        log P(X) = ½(ν-p-1) log|X| - ½ tr(V⁻¹X) - ½ν log|V| - ½νp log 2 - log Γ_p(ν/2),    E[X] = ν V.

    Args:
        df: ν > p - 1, a number or a tensor that broadcasts with the leading axes of the scale.
        scale: V, `[..., p, p]`, symmetric positive definite; or
        scale_tril: its lower Cholesky factor L.
        validate_args: as in `torch.distributions`. Pass False inside `torch.func.vmap` and CUDA graphs;
            `gilib.linalg.cholesky` then reports a scale without a factor.

    Raises:
        ValueError: if ν ≤ p - 1, the scale is not symmetric positive definite, or shapes do not fit.

    >>> Wishart(2.5, scale_tril=torch.eye(2)).mean
    tensor([[2.5000, 0.0000],
            [0.0000, 2.5000]])
    """

    @property
    def mean(self) -> Tensor:
        """The mean ν V, `[*batch, p, p]`."""
        return self.df[..., None, None] * self.scale

    @property
    def mode(self) -> Tensor:
        """The mode (ν-p-1) V, `[*batch, p, p]`; NaN for ν ≤ p + 1, where the density has no maximum."""
        return _where_positive(self.df - self.size - 1)[..., None, None] * self.scale

    @property
    def variance(self) -> Tensor:
        """The variance ν (V_ij² + V_ii V_jj) of each entry, `[*batch, p, p]`."""
        return self.df[..., None, None] * (self.scale**2 + _outer_diagonal(self.scale))

    def _from_normals(self, noise: Tensor) -> Tensor:
        """Return L T of X = L T TᵀLᵀ, T_jj² ~ Gamma((ν-j+1)/2, ½)."""
        return self.scale_tril @ _bartlett(self.column_df, noise)

    def log_prob_cholesky(self, factor: Tensor) -> Tensor:
        self._check_factor(factor)
        root: Tensor = torch.linalg.solve_triangular(self.scale_tril, factor, upper=False)
        return (
            (self.df - self.size - 1) * tril_logdet(factor)
            - 0.5 * root.square().sum((-2, -1))
            - self.df * tril_logdet(self.scale_tril)
            - self.log_norm
        )


class InverseWishart(WishartFamily):
    """The inverse Wishart distribution IW(Ψ, ν) with real ν: the distribution of Ω = X⁻¹ for X ~ W(Ψ⁻¹, ν).

    The density and the mean of the inverse (the prior of Ober & Aitchison, 2021, Eq. 19) are

        log P(Ω) = ½ν log|Ψ| - ½(ν+p+1) log|Ω| - ½ tr(ΨΩ⁻¹) - ½νp log 2 - log Γ_p(ν/2),    E[Ω⁻¹] = ν Ψ⁻¹.

    One factor `g = q.rsample_cholesky(noise=noise)` gives both a draw, `g @ g.mT`, and a ratio of densities,
    `p.log_prob_cholesky(g) - q.log_prob_cholesky(g)`.

    Args:
        df: ν > p - 1; this and the rest as for `Wishart`.
        scale: Ψ, `[..., p, p]`, symmetric positive definite; or
        scale_tril: its lower Cholesky factor C.
        validate_args: as in `torch.distributions`.

    Raises:
        ValueError: for the reasons of `Wishart`.

    >>> InverseWishart(5.0, scale_tril=torch.eye(2)).mean
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """

    @property
    def mean(self) -> Tensor:
        """The mean Ψ / (ν-p-1), `[*batch, p, p]`; NaN for ν ≤ p + 1, where it does not exist."""
        return self.scale / _where_positive(self.df - self.size - 1)[..., None, None]

    @property
    def mode(self) -> Tensor:
        """The mode Ψ / (ν+p+1), `[*batch, p, p]`."""
        return self.scale / (self.df + self.size + 1)[..., None, None]

    @property
    def variance(self) -> Tensor:
        """The variance ((d+2) Ψ_ij² + d Ψ_ii Ψ_jj) / ((d+1) d² (d-2)), d = ν-p-1; NaN for d ≤ 2."""
        d = (_where_positive(self.df - self.size - 3) + 2)[..., None, None]
        return ((d + 2) * self.scale**2 + d * _outer_diagonal(self.scale)) / ((d + 1) * d**2 * (d - 2))

    def _from_normals(self, noise: Tensor) -> Tensor:
        """Return C A⁻¹, A lower triangular, A_jj² ~ Gamma((ν-p+j)/2, ½)."""
        a = _bartlett(self.column_df.flip(-1), noise)
        return torch.linalg.solve_triangular(a, self.scale_tril, upper=False, left=False)

    def log_prob_cholesky(self, factor: Tensor) -> Tensor:
        self._check_factor(factor)
        root: Tensor = torch.linalg.solve_triangular(factor, self.scale_tril, upper=False)
        return (
            self.df * tril_logdet(self.scale_tril)
            - (self.df + self.size + 1) * tril_logdet(factor)
            - 0.5 * root.square().sum((-2, -1))
            - self.log_norm
        )


def _one_matrix(scale: Tensor | None, scale_tril: Tensor | None) -> Tensor:
    name, matrix = one_of(scale=scale, scale_tril=scale_tril)
    if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] == 0:
        raise ValueError(f"{name} must have shape [..., p, p], got {list(matrix.shape)}")
    return matrix


def _bartlett(concentration: Tensor, noise: Tensor) -> Tensor:
    """Return factors with normals below the diagonal, roots of Gamma(concentration, ½) variables on it."""
    log_square = log_gamma_from_normal(concentration, noise.diagonal(dim1=-2, dim2=-1)) + math.log(2)
    return noise.tril(-1) + torch.diag_embed((0.5 * log_square).exp())


def _batch_shape(df: Tensor, matrix: Tensor) -> torch.Size:
    try:
        return torch.Size(torch.broadcast_shapes(df.shape, matrix.shape[:-2]))
    except RuntimeError as error:
        raise ValueError(
            f"df has shape {list(df.shape)}, which does not broadcast with {list(matrix.shape[:-2])}, "
            "the leading axes of the scale"
        ) from error


def _check_df(df: Tensor, size: int) -> None:
    if not bool((df > size - 1).all()):
        raise ValueError(
            f"df must exceed p - 1 = {size - 1} for {size} × {size} matrices, got {float(df.min())}; "
            "with fewer degrees of freedom the draws are singular and have no density"
        )


def _check_matrix(matrix: Tensor, triangular: bool) -> None:
    if triangular and not bool(constraints.lower_cholesky.check(matrix).all()):
        raise ValueError(
            "scale_tril must be lower triangular with a positive diagonal; pass a full matrix as scale"
        )
    if not triangular and not bool(constraints.symmetric.check(matrix).all()):
        raise ValueError("scale must be finite and symmetric; pass a triangular factor as scale_tril")
    if not triangular and bool(torch.linalg.cholesky_ex(matrix).info.any()):
        smallest = float(torch.linalg.eigvalsh(matrix).min())
        raise ValueError(f"scale must be positive definite, its smallest eigenvalue is {smallest:.3g}")


def _outer_diagonal(matrix: Tensor) -> Tensor:
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    return diagonal[..., :, None] * diagonal[..., None, :]


def _where_positive(value: Tensor) -> Tensor:
    return torch.where(value > 0, value, torch.nan)


@register_kl(Wishart, Wishart)
@register_kl(InverseWishart, InverseWishart)
def _kl(p: WishartFamily, q: WishartFamily) -> Tensor:
    """Return KL(W(V_p, ν_p) || W(V_q, ν_q)), also of inverses with Ψ = V⁻¹, since inversion preserves it.

        ½ν_q (log|V_q| - log|V_p|) + ½ν_p (tr(V_q⁻¹V_p) - p) + log Γ_p(½ν_q) - log Γ_p(½ν_p)
        + ½(ν_p-ν_q) ψ_p(½ν_p)

    The normalisers' powers of two cancel.
    """
    if p.size != q.size:
        raise ValueError(f"KL needs matrices of one size, got {p.size} × {p.size} and {q.size} × {q.size}")
    below, above = (q, p) if isinstance(p, Wishart) else (p, q)
    log_det = 2 * (tril_logdet(below.scale_tril) - tril_logdet(above.scale_tril))  # log|V_q| - log|V_p|
    whitened = torch.linalg.solve_triangular(below.scale_tril, above.scale_tril, upper=False)
    log_chi = torch.digamma(p.column_df).sum(-1) + p.size * math.log(2)  # E log|X| for V = Id
    trace = whitened.square().sum((-2, -1))
    return (
        0.5 * q.df * log_det
        + 0.5 * p.df * (trace - p.size)
        + q.log_norm
        - p.log_norm
        + 0.5 * (p.df - q.df) * log_chi
    )
