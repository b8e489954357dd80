"""Bayesian regression with unknown, correlated noise, updated by moving averages over minibatches.

With Y = X W + ε, rows of ε ~ N(0, Σ), and the prior W | Σ ~ MN(0, V_0, Σ), Σ ~ IW(Ψ_0, ν_0), the posterior is
of the same family (Kurle et al., 2024, Eqs. 15, 16):

    V⁻¹ = V_0⁻¹ + XᵀX    M = V XᵀY    Ψ = Ψ_0 + YᵀY - MᵀV⁻¹M    ν = ν_0 + N.

M equals the mean of `gilib.regression.regress` from the same statistics. Minibatches enter as moving averages
(Eq. 17). The subtraction in Ψ would lose digits, so Ψ is averaged from residuals instead. With P = V⁻¹, the
residuals D = Y - X M at the old mean, the factor c = N/B and the rate γ, one factorisation gives the new
state, which is positive definite by construction:

    J = (1-γ) diag(P, Ψ) + γ ([[V_0⁻¹, -V_0⁻¹M], [·, Ψ_0 + MᵀV_0⁻¹M]] + c [X D]ᵀ[X D]),
    chol(J) = [[T, 0], [K, C]]:    P ← J_xx = T Tᵀ    M ← M + T⁻ᵀKᵀ    Ψ ← C Cᵀ.

J is never assembled but factorised by blocks: T Tᵀ = J_xx, Kᵀ = T⁻¹J_xy, C Cᵀ = J_yy - K Kᵀ.

Residuals may be taken at any weights A instead of M. The earlier data then count as features Tᵀ with
residuals -S, S = Tᵀ(A - M): replace the first term by (1-γ) [[P, -T S], [·, Ψ + SᵀS]], and M by A in the
others. For drawn weights A = M + T⁻ᵀS, the noise of the draw is S = E Gᵀ, where G Gᵀ = Ψ / (ν + O + 1) is the
mode of Σ. The network has computed the residuals at A already. They are also small where those at M are
large, which in float32 would make J_yy - K Kᵀ all rounding.

The new mean is not solved for, either. It is stored as A and S = -Kᵀ, with M = A - T⁻ᵀS. The next draw is
A + T⁻ᵀ(E Gᵀ - S): one triangular solve gives both.

**If XᵀX of all points is known** and never changes, V⁻¹ = V_0⁻¹ + XᵀX = T Tᵀ is factorised once, and each
minibatch contributes only cross moments and residuals. The matrix J assembled from these belongs to no data
set, and J_yy - K Kᵀ need not be positive definite. The following form is. With residuals D at A = M + T⁻ᵀS,

    w = γ (S + T⁻¹(c XᵀD - V_0⁻¹A)),    M' = M + T⁻ᵀw = A + δ,    δ = T⁻ᵀ(w - S),
    Ψ' = (1-γ) (Ψ + wᵀw) + γ (Ψ_0 + M'ᵀV_0⁻¹M' + c (D - X δ)ᵀ(D - X δ)),

where Ψ' is a sum of squares. If the minibatch holds all points, this is the posterior in closed form. With
fewer points Ψ is larger than from the minibatch's own moments, because these fit its own residuals best.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gilib.linalg import cholesky, readable
from gilib.linalg.blocks import pieces
from gilib.linalg.onednn import by_onednn
from gilib.linalg.products import add_matmul, matmul, plus_matmul

STRIP = 112  # rows of a triangle per product: with I = 785, 4/7 of the arithmetic of the full square
AT_ONCE = 4096  # points that `gram_of` copies at a time
ROUNDING = (2.0, 20.0, 200.0)  # multiples of I ε or (I + O) ε, tried in turn until a factor exists
WIDE = "features that are nearly dependent, under a wide prior; lower its scale, or take a float64 network"
PRECISION = "the precision of a layer's regression", WIDE
SCATTER = "the residual scatter of a layer's regression", WIDE


class JointState(NamedTuple):
    """The current averages.

    Attributes:
        centre: A, `[R, I, O]`.
        precision: P, `[R, I, I]`; its upper triangle is not read.
        precision_tril: T, the Cholesky factor of P, `[R, I, I]`.
        scale_tril: C, the Cholesky factor of Ψ, `[R, O, O]`.
        white: S = Tᵀ(A - M), `[R, I, O]`; zero if A is the mean.
    """

    centre: Tensor
    precision: Tensor
    precision_tril: Tensor
    scale_tril: Tensor
    white: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean M, `[R, I, O]`."""
        return self.centre - torch.linalg.solve_triangular(self.precision_tril.mT, self.white, upper=True)


class Place(NamedTuple):
    """The weights at which residuals are taken, for example drawn weights."""

    centre: Tensor  # A, `[R, I, O]`
    # S = Tᵀ(A - M), `[R, I, O]`, the noise of the draw; None if the weights are the mean
    white: Tensor | None = None


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


def averaged(
    state: JointState,
    batch: Residuals,
    prior_precision: Tensor,
    prior_scale: float,
    rate: Tensor,
    place: Place | None = None,
) -> JointState:
    """Return the state after a minibatch, given its moments.

    Args:
        state: state before the minibatch.
        batch: moments of the minibatch; its Gram matrix is overwritten with the new P.
        prior_precision: diagonal of V_0⁻¹, `[R, I]`.
        prior_scale: Ψ_0 = prior_scale · Id.
        rate: γ, `[R]`; 1 for the first minibatch.
        place: weights at which the residuals of `batch` were taken; the mean of `state` if None.

    Raises:
        FactorisationError: if a matrix is not positive definite, as `gilib.linalg.cholesky` says.

    >>> from gilib.regression import residuals
    >>> one = torch.ones(1, 1)
    >>> start = JointState(0 * one, one, one, one, 0 * one)
    >>> batch = residuals(torch.ones(3, 1), torch.ones(3, 1), start.mean, 1.0)
    >>> averaged(start, batch, torch.ones(1), 1.0, torch.tensor(1.0)).mean
    tensor([[0.7500]])
    """
    centre, noise = Place(state.mean) if place is None else place
    by_matrix, shrunk = rate[..., None, None], prior_precision[..., None] * centre
    precision = torch.lerp(state.precision, batch.gram, by_matrix, out=batch.gram)
    precision.diagonal(dim1=-2, dim2=-1).add_(rate[..., None] * prior_precision)
    scatter, slope = state.scale_tril @ state.scale_tril.mT, shrunk - batch.cross
    if noise is None:
        slope = by_matrix * slope
    else:
        scatter = plus_matmul(scatter, noise.mT, noise)
        slope = torch.lerp(_lower_product(state.precision_tril, noise), slope, by_matrix)
    scatter = torch.lerp(scatter, plus_matmul(batch.scatter, centre.mT, shrunk), by_matrix)
    scatter.diagonal(dim1=-2, dim2=-1).add_(rate[..., None] * prior_scale)
    precision, root = precision_factor(precision)
    white = torch.linalg.solve_triangular(root, slope, upper=False)  # -Kᵀ
    return JointState(centre, precision, root, scale_factor(scatter, white), white)


def averaged_with(
    state: JointState,
    cross: Tensor,
    prior_precision: Tensor,
    prior_scale: float,
    rate: Tensor,
    place: Place,
    scatter: Callable[[Tensor], Tensor],
) -> JointState:
    """Return the state after a minibatch, if XᵀX of all points is known; arguments are as for `averaged`.

    The V⁻¹ of `state` already includes all points, and the S of `place` is computed by its T. `cross` is
    c XᵀD, `[R, I, O]`, and `scatter` maps δ to c (D - X δ)ᵀ(D - X δ), `[R, O, O]`.
    """
    by_matrix, (centre, noise), root = rate[..., None, None], place, state.precision_tril
    noise = torch.zeros_like(centre) if noise is None else noise
    slope = torch.addcmul(cross, prior_precision[..., None], centre, value=-1.0)
    white = by_matrix * (noise + torch.linalg.solve_triangular(root, slope, upper=False))
    step = torch.linalg.solve_triangular(root.mT, white - noise, upper=True)
    mean = centre + step
    seen = state.scale_tril @ state.scale_tril.mT + matmul(white.mT, white)
    new = scatter(step) + matmul(mean.mT, prior_precision[..., None] * mean)
    total = torch.lerp(seen, new, by_matrix)
    total.diagonal(dim1=-2, dim2=-1).add_(rate[..., None] * prior_scale)
    scale_tril = scale_factor(total, torch.zeros_like(white[..., :0, :]))
    return state._replace(centre=mean, scale_tril=scale_tril, white=torch.zeros_like(mean))


def factored(gram: Tensor, prior_precision: Tensor) -> tuple[Tensor, Tensor]:
    """Return V⁻¹ = V_0⁻¹ + XᵀX and its factor T, `[R, I, I]`, given XᵀX and the diagonal of V_0⁻¹."""
    return precision_factor(gram + torch.diag_embed(prior_precision))


def precision_factor(precision: Tensor) -> tuple[Tensor, Tensor]:
    """Return P and its Cholesky factor T, `[R, I, I]`.

    Under a wide prior the rounding error of the Gram matrix exceeds V_0⁻¹, and P may have no factor. Amounts
    of that size are then added to its diagonal; not on an accelerator, where no flag is read.
    """
    if not readable(precision):
        return precision, cholesky(precision, *PRECISION)
    return _mended(precision, None, precision.shape[-1], PRECISION)


def scale_factor(scatter: Tensor, white: Tensor) -> Tensor:
    """Return C, the Cholesky factor of J_yy - K Kᵀ, `[R, O, O]`, given J_yy and -Kᵀ.

    If features depend on each other, the difference is in some directions only Ψ_0, which in float32 is
    smaller than its rounding error: about (I + O) ε of the diagonal of J_yy, and more if T is
    ill-conditioned. Replicas whose factor fails get amounts of that size added. On an accelerator, where no
    flag is read, all amounts are tried.
    """
    corner = plus_matmul(scatter, white.mT, white, weight=-1.0)
    return _mended(corner, scatter, sum(white.shape[-2:]), SCATTER)[1]


def _mended(matrix: Tensor, like: Tensor | None, size: int, named: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Return matrices and factors, after adding to those that have none rounding errors of `like`'s diagonal.

    They are multiples of `size` ε; None: of the matrix itself.
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    for times in ROUNDING:
        if readable(info) and not bool(info.any()):
            return matrix, factor
        diagonal = (matrix if like is None else like).diagonal(dim1=-2, dim2=-1)
        unit = times * size * torch.finfo(matrix.dtype).eps * diagonal
        matrix = matrix + torch.diag_embed(unit * (info > 0)[..., None])
        factor, info = torch.linalg.cholesky_ex(matrix)
    return matrix, cholesky(matrix, *named)


def _lower_product(factor: Tensor, values: Tensor) -> Tensor:
    """Return T S, computed in strips of rows to skip the zeros above the diagonal of T."""
    size = factor.shape[-1]
    if size <= STRIP:
        return factor @ values
    product = torch.empty_like(values)
    for rows in pieces(size, STRIP):
        product[..., rows, :] = matmul(factor[..., rows, : rows.stop], values[..., : rows.stop, :])
    return product


def residuals(
    features: Tensor, targets: Tensor, mean: Tensor, weight: float, scale: float = 1.0, bias: bool = False
) -> Residuals:
    """Return the moments of a minibatch.

    Args:
        features: X / scale, `[R, B, I]`; with `bias` without the last column of X, `[R, B, I - 1]`.
        targets: Y, `[R, B, O]`.
        mean: M, `[R, I, O]`, at which the residuals are taken.
        weight: c.
        scale: scale of the features; small matrices are multiplied by it instead of X.
        bias: whether X has a last column of ones, which `features` leaves out.

    Returns:
        c XᵀX, c XᵀD and c DᵀD for D = Y - X M.
    """
    return moments(features, unexplained(features, targets, mean, scale, bias), weight, scale, bias)


def unexplained(
    features: Tensor, targets: Tensor, mean: Tensor, scale: float = 1.0, bias: bool = False
) -> Tensor:
    """Return the residuals D = Y - X M, `[R, B, O]`; arguments as for `residuals`."""
    weights, rest = scale * mean, targets
    if bias:
        weights, rest = weights[..., :-1, :], targets - weights[..., -1:, :]
    return rest - matmul(features, weights)


def moments(
    features: Tensor,
    left: Tensor,
    weight: float,
    scale: float = 1.0,
    bias: bool = False,
    out: Tensor | None = None,
) -> Residuals:
    """Return the moments of a minibatch with known residuals D, `left`; other arguments as for `residuals`.

    With many features, `out`, `[R, I, I]` with zeros above its diagonal, takes their Gram matrix.
    """
    if features.shape[-1] + bias + left.shape[-1] <= STRIP:
        return _at_once(features, left, weight, scale, bias)
    features, bias = _widened(features, bias)
    columns = _columns(features)
    gram = _gram(columns, features.shape[:-2], weight * scale**2, bias, out)
    cross = _cross(columns, left, weight * scale, bias)
    return Residuals(gram, cross, matmul(left.mT, left).mul_(weight))


def _at_once(features: Tensor, left: Tensor, weight: float, scale: float, bias: bool) -> Residuals:
    """Compute all moments in one product; with few features and outputs, calls cost more than arithmetic."""
    ones = [features.new_ones(*features.shape[:-1], 1)] if bias else []
    rows, size = torch.cat([features, *ones, left], -1), features.shape[-1] + bias
    units = _units(size, left.shape[-1], weight, scale, left.dtype, left.device)
    above, below = (matmul(rows.mT, rows) * units).split_with_sizes([size, left.shape[-1]], -2)
    gram, cross = above.split_with_sizes([size, left.shape[-1]], -1)
    return Residuals(gram, cross, below[..., size:])


@functools.lru_cache(maxsize=64)
@torch.inference_mode(False)
def _units(
    inputs: int, outputs: int, weight: float, scale: float, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the factors of weight and scale for all products of features and residuals, `[I + O, I + O]`."""
    each = torch.full((inputs + outputs,), scale, dtype=dtype, device=device)
    each[inputs:] = 1.0
    return weight * torch.outer(each, each)


def cross_moments(
    features: Tensor, left: Tensor, weight: float, scale: float = 1.0, bias: bool = False
) -> Tensor:
    """Return only c XᵀD, `[R, I, O]`, without copying many features; arguments as for `moments`."""
    features, bias = _widened(features, bias)
    cross = matmul(left.mT, features).mT * (weight * scale)
    return torch.cat([cross, left.sum(-2, keepdim=True) * (weight * scale)], -2) if bias else cross


def gram_of(features: Tensor, scale: float = 1.0, bias: bool = False) -> Tensor:
    """Return XᵀX of many points, `[R, I, I]`, summed over parts; its upper triangle is not filled."""
    lead, total = features.shape[:-2], None
    for part in features.split(AT_ONCE, -2):
        part, ones = _widened(part, bias)
        gram = _gram(_columns(part), lead, scale**2, ones, None)
        total = gram if total is None else total.add_(gram)
    assert total is not None
    return total


def _widened(features: Tensor, bias: bool) -> tuple[Tensor, bool]:
    """Append the column of ones to few features, and return whether it is still missing."""
    if not bias or features.shape[-1] >= STRIP:
        return features, bias
    ones = features.new_ones(()).expand(*features.shape[:-1], 1)
    return torch.cat([features, ones], -1), False


def _columns(features: Tensor) -> Tensor:
    """Return Xᵀ, `[R, I, B]`; contiguous if oneDNN multiplies, which would otherwise copy every strip."""
    columns = (features.flatten(0, -3) if features.dim() > 2 else features[None]).mT
    return columns.contiguous() if by_onednn(columns, features) else columns


def _gram(columns: Tensor, lead: torch.Size, weight: float, bias: bool, out: Tensor | None) -> Tensor:
    """Return the lower triangle of `weight` · XᵀX, `[*lead, I, I]`, filled in strips of rows."""
    size = columns.shape[-2] + bias
    gram = columns.new_zeros(*lead, size, size) if out is None else out
    flat = gram.view(-1, size, size)
    for strip in pieces(columns.shape[-2], STRIP):  # whose diagonal blocks are filled whole
        left, right = columns[:, strip], columns[:, : strip.stop].mT
        add_matmul(flat[:, strip, : strip.stop], left, right, weight, beta=0.0)
    if bias:
        flat[:, -1, :-1] = weight * columns.sum(-1)
        flat[:, -1, -1] = weight * columns.shape[-1]
    return gram


def _cross(columns: Tensor, left: Tensor, weight: float, bias: bool) -> Tensor:
    """Return `weight` · XᵀD; with `bias` its last row is the sum of D, for the missing column of ones."""
    size = columns.shape[-2] + bias
    cross = left.new_empty(*left.shape[:-2], size, left.shape[-1])
    known = cross.view(-1, *cross.shape[-2:])[:, : columns.shape[-2]]
    add_matmul(known, columns, left.reshape(-1, *left.shape[-2:]), weight, beta=0.0)
    if bias:
        torch.sum(left, -2, out=cross[..., -1, :]).mul_(weight)
    return cross
