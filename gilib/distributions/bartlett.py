"""The common base of Wishart and inverse Wishart: parameters, checks and Bartlett's random factor."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from gilib.distributions.gamma import log_gamma_from_normal
from gilib.linalg import cholesky


class WishartFamily(Distribution, ABC):
    """A distribution over positive definite matrices with real degrees of freedom and a scale matrix."""

    has_rsample = True
    support = constraints.positive_definite

    def __init__(
        self,
        df: Tensor | float,
        scale: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        """Check and store the parameters; see the subclasses."""
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

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> WishartFamily:
        """Return this distribution with a larger batch shape, without copying the parameters."""
        new: WishartFamily = self._get_checked_instance(type(self), _instance)
        batch_shape = torch.Size(batch_shape)
        new.df = self.df.expand(batch_shape)
        new.scale_tril = self.scale_tril.expand(*batch_shape, *self.event_shape)
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
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

    def sample(self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Tensor:
        """Draw matrices without gradients, `[*sample_shape, *batch, p, p]`."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator=generator)

    @abstractmethod
    def rsample_cholesky(
        self,
        sample_shape: Sequence[int] = (),
        noise: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw lower Cholesky factors."""

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density (nats) of `value` `[..., p, p]` over its p(p+1)/2 distinct entries."""
        if self._validate_args:
            self._validate_sample(value)
        return self.log_prob_cholesky(cholesky(value, "the value"))

    @abstractmethod
    def log_prob_cholesky(self, factor: Tensor) -> Tensor:
        """Return the log density (nats) of the matrix with Cholesky factor `factor` `[..., p, p]`."""

    @property
    def size(self) -> int:
        """p, the number of rows and of columns."""
        return self.event_shape[-1]

    @property
    def column_df(self) -> Tensor:
        """Half the degrees of freedom of each column, (ν - j + 1) / 2 for j = 1..p, `[*batch, p]`."""
        return (self.df[..., None] - torch.arange(self.size, dtype=self.df.dtype, device=self.df.device)) / 2

    @property
    def log_norm(self) -> Tensor:
        """Log normaliser for a unit scale, (νp/2) log 2 + log Γ_p(ν/2) (Eqs. 64-65)."""
        p = self.size
        log_gamma = torch.lgamma(self.column_df).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)
        return self.df * (p / 2 * math.log(2)) + log_gamma

    def bartlett(
        self,
        concentration: Tensor,
        sample_shape: Sequence[int],
        noise: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Draw a factor: normals below the diagonal, roots of Gamma(concentration, ½) variables on it."""
        if noise is None:
            shape = self._extended_shape(torch.Size(sample_shape))
            like = self.scale_tril
            noise = torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
        else:
            self._check_noise(noise, sample_shape)
        log_square = log_gamma_from_normal(concentration, noise.diagonal(dim1=-2, dim2=-1)) + math.log(2)
        return noise.tril(-1) + torch.diag_embed((0.5 * log_square).exp())

    def _check_noise(self, noise: Tensor, sample_shape: Sequence[int]) -> None:
        tail = (*self.batch_shape, *self.event_shape)
        leading = tuple(sample_shape) or tuple(noise.shape[: max(noise.dim() - len(tail), 0)])
        if tuple(noise.shape) != (*leading, *tail):
            wanted = ", ".join(map(str, (*(sample_shape or ("...",)), *tail)))
            raise ValueError(
                f"noise must have shape [{wanted}] (sample_shape, batch shape, p, p), got {list(noise.shape)}"
            )

    def check_factor(self, factor: Tensor) -> None:
        """If arguments are validated, raise an error unless `factor` holds lower Cholesky factors."""
        if not self._validate_args:
            return
        if factor.shape[-2:] != self.event_shape or not bool(constraints.lower_cholesky.check(factor).all()):
            raise ValueError(
                f"factor must hold lower triangular matrices [..., {self.size}, {self.size}] with positive "
                f"diagonals, got shape {list(factor.shape)}; use log_prob for the matrices themselves"
            )


def _one_matrix(scale: Tensor | None, scale_tril: Tensor | None) -> Tensor:
    """Return the scale matrix or its factor, whichever is given."""
    matrix, name = (scale_tril, "scale_tril") if scale is None else (scale, "scale")
    if matrix is None or (scale is not None and scale_tril is not None):
        raise ValueError(
            f"give exactly one of scale and scale_tril, got {'neither' if matrix is None else 'both'}"
        )
    if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] == 0:
        raise ValueError(f"{name} must have shape [..., p, p], got {list(matrix.shape)}")
    return matrix


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
