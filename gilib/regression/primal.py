"""Bayesian linear regression from sufficient statistics.

For a prior w_o ~ N(0, P⁻¹) and statistics (A_o, b_o), the posterior over each column of the weights is
Gaussian with

    precision  H_o = P + A_o          mean  H_o⁻¹ b_o          (Ober & Aitchison, 2021, Eqs. 8, 9, 11)

With the Cholesky factor H = T Tᵀ and a standard normal z,

    w = T⁻ᵀ (T⁻¹ b + z),        log Q(w) = -½‖z‖² + Σ log diag T - ½ I log 2π.

A draw needs one factorisation, no covariance and no jitter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gilib.linalg import SymmetricOperator, cholesky, inverse_cholesky
from gilib.linalg.blocks import piecewise
from gilib.linalg.columns import Columns
from gilib.linalg.operation import Operation, first_order, is_transformed
from gilib.linalg.samples import leading
from gilib.statistics import Statistics

LOG_2PI = math.log(2.0 * math.pi)
DEPENDENT = (
    "features that are nearly dependent, or precisions far apart; "
    "factorise in float64 (factor_dtype='float64', or a network in float64) or lower the learning rate"
)
NAMED = "the posterior precision", DEPENDENT


def regress(statistics: Statistics, prior_precision: SymmetricOperator) -> WeightPosterior:
    """Return the posterior over weights given statistics, for the prior w_o ~ N(0, P⁻¹).

    Args:
        statistics: `gram` `[..., G, I, I]`, `cross` `[..., G, I, C]`; O = G · C outputs.
        prior_precision: P, an operator `[..., I, I]`.

    Returns:
        The `WeightPosterior`, which draws and scores weights `[..., I, O]`.

    >>> from gilib.linalg import ScaledIdentity
    >>> from gilib.statistics import shared_statistics
    >>> statistics = shared_statistics(torch.ones(3, 1), torch.ones(3, 1), torch.ones(3))
    >>> regress(statistics, ScaledIdentity(torch.tensor(1.0), 1)).mean
    tensor([[0.7500]])
    """
    return WeightPosterior(prior_precision.add_to(statistics.gram), statistics.cross, prior_precision)


@dataclass(frozen=True)
class WeightPosterior:
    """Independent Gaussians over the columns of a weight matrix, given by precision and precision times mean.

    Attributes:
        precision: H, `[..., G, I, I]`.
        shift: b = H · mean, `[..., G, I, C]`.
        prior_precision: P, the prior precision, for log P(w).
    """

    precision: Tensor
    shift: Tensor
    prior_precision: SymmetricOperator

    def draw(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights w, `[..., I, O]`, and log P(w) - log Q(w), `[...]`, nats, summed over the weights.

        Args:
            noise: standard normals, `[..., I, O]`; its leading axes include those of the statistics.
        """
        outputs = noise.shape[-1]
        drawn, log_q = sample_from_precision(
            self.precision, self.shift, split_outputs(noise, self.shift.shape[-1])
        )
        weights = merge_outputs(drawn)
        return weights, prior_log_prob(weights, self.prior_precision, outputs) - log_q

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the regression."""
        return self.precision.dtype

    @property
    def mean(self) -> Tensor:
        """The mean H⁻¹ b, `[..., I, O]`."""
        return merge_outputs(torch.cholesky_solve(self.shift, cholesky(self.precision, *NAMED)))

    @property
    def covariance(self) -> Tensor:
        """The covariance H⁻¹ of each group of outputs, `[..., G, I, I]`."""
        return torch.cholesky_inverse(cholesky(self.precision, *NAMED))

    def log_prob(self, weights: Tensor) -> Tensor:
        """Return log Q(w) of given `weights` `[..., I, O]`; `[...]`, nats, summed over the weights."""
        factor = cholesky(self.precision, *NAMED)
        blocks = split_outputs(weights, self.shift.shape[-1])
        mean = torch.cholesky_solve(self.shift, factor)
        white = factor.mT @ (blocks - mean)
        log_det = blocks.shape[-1] * factor.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        return log_det - 0.5 * white.square().sum((-3, -2, -1)) - 0.5 * weights.shape[-2:].numel() * LOG_2PI


def prior_log_prob(weights: Tensor, prior_precision: SymmetricOperator, outputs: int) -> Tensor:
    """Return log P(w) = Σ_o log N(w_o; 0, P⁻¹) of `weights` `[..., I, O]`; `[...]`, nats."""
    log_det, count = prior_precision.log_det(), prior_precision.size * outputs
    return 0.5 * (outputs * log_det - prior_precision.quadratic(weights) - count * LOG_2PI)


def split_outputs(weights: Tensor, columns: int) -> Tensor:
    """Arrange weights `[..., I, O]` as G groups of C = `columns` outputs, `[..., G, I, C]`."""
    return weights.unflatten(-1, (-1, columns)).movedim(-2, -3)


def merge_outputs(blocks: Tensor) -> Tensor:
    """Undo `split_outputs`: arrange `[..., G, I, C]` as `[..., I, O]`, O = G · C."""
    return blocks.movedim(-3, -2).flatten(-2)


def sample_from_precision(precision: Tensor, shift: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from N(H⁻¹b, H⁻¹) and score the draw, with the gradient in closed form.

    With u = T⁻¹b, r = u + z and upstream gradients g of w and q of log Q, let h = T⁻¹g. Then

        ∂b = T⁻ᵀh,    ∂H = T⁻ᵀ (½ q Id - sym(tril'(r hᵀ + h uᵀ))) T⁻¹,    ∂z = h - q z,

    where tril' is the lower triangle with its diagonal halved. This takes three matrix products and no solve.

    Args:
        precision: H, `[..., G, I, I]`, symmetric; the gradient is symmetric too.
        shift: b, `[..., G, I, C]`.
        noise: z, `[..., G, I, C]`, standard normal. Leading axes broadcast; if H has no sample axis, it is
            factorised once for all samples.

    Returns:
        w `[..., G, I, C]` and log Q(w) `[...]`, nats, summed over groups and columns.
    """
    if is_transformed(precision, shift, noise):
        return _sampled_plainly(precision, shift, noise)
    weights, log_q, *_ = _SampleFromPrecision.apply(precision, shift, noise)
    return weights, log_q


def _sampled_plainly(precision: Tensor, shift: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Draw by plain products, which transforms of `torch.func` can differentiate twice."""
    inverse = inverse_cholesky(precision, *NAMED)  # T⁻¹
    weights = inverse.mT @ (inverse @ shift + noise)
    groups = inverse.diagonal(dim1=-2, dim2=-1).log().sum(-1).expand(weights.shape[:-2])
    squares, numbers = noise.square().sum((-3, -2, -1)), noise.shape[-3:].numel()
    return weights, -noise.shape[-1] * groups.sum(-1) - 0.5 * squares - 0.5 * numbers * LOG_2PI


class _SampleFromPrecision(Operation):
    """`sample_from_precision` with its closed gradient; T⁻¹ and u are outputs for the backward pass."""

    @staticmethod
    def forward(precision: Tensor, shift: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        lead = leading(precision, shift, noise)
        columns, count = Columns(precision.shape[:-2], lead), noise.shape[-1]
        inverse = inverse_cholesky(precision, *NAMED)  # T⁻¹
        matrices = inverse.flatten(0, -3)  # [B, I, I]
        white_mean, weights = piecewise(_draw, matrices, columns.merge(shift), columns.merge(noise))
        half_log_det = -count * inverse.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        log_q = (
            half_log_det - 0.5 * noise.square().sum((-3, -2, -1)) - 0.5 * noise.shape[-3:].numel() * LOG_2PI
        )
        return columns.split(weights, count), log_q, inverse, columns.split(white_mean, count)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        precision, shift, noise = inputs
        _, _, inverse, white_mean = output
        ctx.mark_non_differentiable(inverse, white_mean)
        ctx.set_materialize_grads(False)
        ctx.shapes = precision.shape, shift.shape, noise.shape
        ctx.save_for_backward(inverse, white_mean, noise)

    @staticmethod
    @first_order
    def backward(ctx: Any, g: Tensor | None, q: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
        inverse, white_mean, noise = ctx.saved_tensors
        precision_shape, shift_shape, noise_shape = ctx.shapes
        lead, count = white_mean.shape[:-2], noise.shape[-1]
        columns = Columns(precision_shape[:-2], lead)
        g = torch.zeros_like(white_mean) if g is None else g
        q = noise.new_zeros(lead[:-1]) if q is None else q
        d_precision, d_b, h = piecewise(
            _gradients,
            inverse.flatten(0, -3),
            columns.merge(white_mean),
            columns.merge(noise),
            columns.merge(g),
            columns.total(0.5 * count * q[..., None]),
        )
        d_shift = columns.split(d_b, count).sum_to_size(shift_shape)
        d_noise = None  # noise seldom needs a gradient
        if ctx.needs_input_grad[2]:
            d_noise = (columns.split(h, count) - q[..., None, None, None] * noise).sum_to_size(noise_shape)
        return d_precision.reshape(precision_shape), d_shift, d_noise

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], int]:
        rank = max(x.dim() - (dim is not None) for x, dim in zip(inputs, in_dims, strict=True))
        aligned = []
        for x, dim in zip(inputs, in_dims, strict=True):
            x = x[None] if dim is None else x.movedim(dim, 0)
            aligned.append(x.reshape(x.shape[0], *(1,) * (rank + 1 - x.dim()), *x.shape[1:]))
        aligned[2] = aligned[2].expand(info.batch_size, *aligned[2].shape[1:])
        output = _SampleFromPrecision.apply(*aligned)
        return tuple(x.expand(info.batch_size, *x.shape[1:]) for x in output), 0


def _draw(inverse: Tensor, b: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return u = T⁻¹b and the draw w, given T⁻¹ `[B, I, I]`, b and z `[B, I, columns]`."""
    white_mean = _times(inverse, b)
    return white_mean, _transpose_times(inverse, white_mean + z)


def _gradients(
    inverse: Tensor, u: Tensor, z: Tensor, g: Tensor, trace: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ∂H, ∂b and h of `sample_from_precision`, given T⁻¹ and ½ Σ q over the columns, `[B, 1]`."""
    h = _times(inverse, g)
    minus = -h
    lower = _add_outer(_outer(u + z, minus), minus, u)
    lower = lower.tril_().mul_(0.5)
    inner = lower + lower.mT
    inner.diagonal(dim1=-2, dim2=-1).mul_(0.5).add_(trace)
    return torch.bmm(torch.bmm(inverse.mT, inner), inverse), _transpose_times(inverse, h), h


def _times(matrix: Tensor, columns: Tensor) -> Tensor:
    """Return `matrix` @ `columns`; one column is multiplied elementwise, which beats many small products."""
    if columns.shape[-1] > 1:
        return torch.bmm(matrix, columns)
    return (matrix * columns.mT).sum(-1, keepdim=True)


def _transpose_times(matrix: Tensor, columns: Tensor) -> Tensor:
    if columns.shape[-1] > 1:
        return torch.bmm(matrix.mT, columns)
    return (matrix * columns).sum(-2, keepdim=True).mT


def _outer(left: Tensor, right: Tensor) -> Tensor:
    return left * right.mT if left.shape[-1] == 1 else torch.bmm(left, right.mT)


def _add_outer(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return `total` + `left` @ `right`ᵀ; `total` may be overwritten."""
    if left.shape[-1] == 1:
        return total.addcmul_(left, right.mT)
    return torch.baddbmm(total, left, right.mT)
