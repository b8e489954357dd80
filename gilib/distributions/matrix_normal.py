"""Matrix normal distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from gilib.linalg.columns import solve_shared
from gilib.linalg.factor import tril_logdet

LOG_2PI = math.log(2.0 * math.pi)


class FromNormals(Distribution):
    """A distribution over matrices that is drawn by transforming standard normals of their shape."""

    has_rsample = True

    def sample(self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Tensor:
        """Draw matrices without gradients, `[*sample_shape, *batch, *matrix]`."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator=generator)  # type: ignore[call-arg, arg-type]

    def _normals(
        self,
        sample_shape: Sequence[int],
        noise: Tensor | None,
        generator: torch.Generator | None,
        like: Tensor,
    ) -> Tensor:
        if noise is None:
            shape = self._extended_shape(torch.Size(sample_shape))
            return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
        tail = (*self.batch_shape, *self.event_shape)
        leading = tuple(sample_shape) or tuple(noise.shape[: max(noise.dim() - len(tail), 0)])
        if tuple(noise.shape) != (*leading, *tail):
            wanted = ", ".join(map(str, (*(sample_shape or ("...",)), *tail)))
            raise ValueError(f"noise must have shape [{wanted}], got {list(noise.shape)}")
        return noise


class MatrixNormal(FromNormals):
    """The matrix normal distribution MN(M, V, Σ) over I × O matrices: vec W ~ N(vec M, Σ ⊗ V).

        W = M + chol(V) E chol(Σ)ᵀ, E standard normal;    Cov(W_io, W_jp) = V_ij Σ_op.

    The rows may be given by their precision V⁻¹ = T Tᵀ; T⁻ᵀ then replaces chol(V).

    Args:
        loc: M, `[..., I, O]`.
        row_scale_tril: chol(V), `[..., I, I]`; or
        row_precision_tril: T, the Cholesky factor of V⁻¹, `[..., I, I]`.
        column_scale_tril: chol(Σ), `[..., O, O]`.
        validate_args: as in `torch.distributions`.

    Raises:
        ValueError: if factors are not lower triangular with a positive diagonal, or shapes do not fit.

    >>> MatrixNormal(torch.zeros(3, 2), torch.eye(3), column_scale_tril=2 * torch.eye(2)).variance[0]
    tensor([4., 4.])
    """

    support = constraints.independent(constraints.real, 2)

    def __init__(
        self,
        loc: Tensor,
        row_scale_tril: Tensor | None = None,
        column_scale_tril: Tensor | None = None,
        *,
        row_precision_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, rows = one_of(row_scale_tril=row_scale_tril, row_precision_tril=row_precision_tril)
        if column_scale_tril is None:
            raise ValueError("give column_scale_tril, the Cholesky factor of the covariance of the columns")
        batch_shape = _batch_shape(loc, rows, column_scale_tril)
        validate = Distribution._validate_args if validate_args is None else validate_args
        if validate:
            _check_tril(rows, name)
            _check_tril(column_scale_tril, "column_scale_tril")
        self.by_precision, self.row_tril = name == "row_precision_tril", rows
        self.column_scale_tril = column_scale_tril
        self.loc = loc.expand(*batch_shape, *loc.shape[-2:])
        super().__init__(batch_shape, loc.shape[-2:], validate_args=False)
        self._validate_args = validate

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """`loc` is a real matrix, and both factors are Cholesky factors."""
        tril = constraints.lower_cholesky
        return {"loc": self.support, "row_tril": tril, "column_scale_tril": tril}

    @property
    def mean(self) -> Tensor:
        """M, `[*batch, I, O]`."""
        return self.loc

    mode = mean

    @property
    def row_covariance(self) -> Tensor:
        """V, `[..., I, I]`."""
        if self.by_precision:
            return torch.cholesky_inverse(self.row_tril)
        return self.row_tril @ self.row_tril.mT

    @property
    def column_covariance(self) -> Tensor:
        """Σ, `[..., O, O]`."""
        return self.column_scale_tril @ self.column_scale_tril.mT

    @property
    def variance(self) -> Tensor:
        """V_ii Σ_oo, `[*batch, I, O]`."""
        rows = self.row_covariance.diagonal(dim1=-2, dim2=-1)[..., :, None]
        columns = self.column_covariance.diagonal(dim1=-2, dim2=-1)[..., None, :]
        return (rows * columns).expand(self.loc.shape)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> MatrixNormal:
        """Return this distribution with a larger batch shape."""
        loc = self.loc.expand(*batch_shape, *self.event_shape)
        name = "row_precision_tril" if self.by_precision else "row_scale_tril"
        return MatrixNormal(
            loc, column_scale_tril=self.column_scale_tril, validate_args=False, **{name: self.row_tril}
        )

    def entropy(self) -> Tensor:
        """Return the entropy ½ [I O (1 + log 2π) + O log det V + I log det Σ], `[*batch]` nats."""
        return 0.5 * self.event_shape.numel() - self.log_prob_noise(torch.zeros_like(self.loc))

    def rsample(
        self,
        sample_shape: Sequence[int] = (),
        noise: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw matrices `[*sample_shape, *batch, I, O]`, differentiable in all parameters.

        Args:
            sample_shape: leading axes of the draw; not needed with `noise`.
            noise: E, standard normals `[*sample_shape, *batch, I, O]`; drawn if None.
            generator: source of the noise, if it is drawn.
        """
        noise = self._normals(sample_shape, noise, generator, self.loc)
        columns = noise @ self.column_scale_tril.mT
        rows = solve_shared(self.row_tril.mT, columns) if self.by_precision else self.row_tril @ columns
        return self.loc + rows

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density (nats) of matrices `[..., I, O]`."""
        if self._validate_args:
            self._validate_sample(value)
        deviation = value - self.loc
        if self.by_precision:
            white = self.row_tril.mT @ deviation
        else:
            white = torch.linalg.solve_triangular(self.row_tril, deviation, upper=False)
        return self.log_prob_noise(
            torch.linalg.solve_triangular(self.column_scale_tril.mT, white, upper=True, left=False)
        )

    def log_prob_noise(self, noise: Tensor) -> Tensor:
        """Return the log density (nats) of the matrix that `rsample` draws from `noise`, without a solve."""
        rows, outputs = self.event_shape
        sign = 1.0 if self.by_precision else -1.0
        of_rows = sign * outputs * tril_logdet(self.row_tril) - 0.5 * rows * outputs * LOG_2PI
        log_det = of_rows.sub(tril_logdet(self.column_scale_tril), alpha=rows)
        return log_det.sub(noise.square().sum((-2, -1)), alpha=0.5)


def one_of(**matrices: Tensor | None) -> tuple[str, Tensor]:
    """Return the name and value of the only matrix that is given."""
    given = {name: matrix for name, matrix in matrices.items() if matrix is not None}
    if len(given) != 1:
        which = "both" if given else "neither"
        raise ValueError(f"give exactly one of {' and '.join(matrices)}, got {which}")
    return given.popitem()


def _batch_shape(loc: Tensor, rows: Tensor, columns: Tensor) -> torch.Size:
    if loc.dim() < 2:
        raise ValueError(f"loc must have shape [..., I, O], got {list(loc.shape)}")
    for factor, name, size in ((rows, "rows", loc.shape[-2]), (columns, "columns", loc.shape[-1])):
        if tuple(factor.shape[-2:]) != (size, size):
            raise ValueError(
                f"the factor of the {name} must have shape [..., {size}, {size}] for loc "
                f"{list(loc.shape)}, got {list(factor.shape)}"
            )
    if loc.shape[:-2] == rows.shape[:-2] == columns.shape[:-2]:
        return loc.shape[:-2]
    return torch.Size(torch.broadcast_shapes(loc.shape[:-2], rows.shape[:-2], columns.shape[:-2]))


def _check_tril(factor: Tensor, name: str) -> None:
    if not bool(constraints.lower_cholesky.check(factor).all()):
        raise ValueError(f"{name} must be lower triangular with a positive diagonal, got another matrix")
