"""What a process is at many points given its inducing outputs, one sample after the other.

With kernel values k = k(Z, x), R⁻¹, and w_o ~ N(m_o, S_o): a = R⁻¹ k, then aᵀ m_o, |a|² and aᵀ S_o a. Of each
sample these are a few hundred kilobytes, which stay in cache from the first product to the last; written for
all samples at once they travel to memory and back a dozen times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gilib.linalg.quadratic import add_form_gradients, product, quadratic_forms, samples, write_forms


class Projected(NamedTuple):
    """What the mean and the variance at N points are made of.

    Attributes:
        mean: aᵀ m_o, `[..., O, N]`.
        square: |a|², `[..., N]`.
        forms: aᵀ S_o a, `[..., O, N]`; None without S.
    """

    mean: Tensor
    square: Tensor
    forms: Tensor | None


def project(kernel: Tensor, inverse: Tensor, mean: Tensor, covariance: Tensor | None) -> Projected:
    """Project the law of w onto points.

    Args:
        kernel: k(Z, x), `[..., M, N]`.
        inverse: R⁻¹, `[..., M, M]`.
        mean: m, `[..., M, O]`.
        covariance: S, `[..., O, M, M]`, symmetric, or None. Leading axes broadcast.
    """
    lead = torch.broadcast_shapes(kernel.shape[:-2], inverse.shape[:-2])
    own = () if covariance is None else covariance.shape[:-3]
    shared = torch.broadcast_shapes(lead, mean.shape[:-2], own) != lead
    if shared or kernel.device.type != "cpu":
        return projected_at_once(kernel, inverse, mean, covariance)
    return Projected(*_Project.apply(kernel, inverse, mean, covariance))


def projected_at_once(kernel: Tensor, inverse: Tensor, mean: Tensor, covariance: Tensor | None) -> Projected:
    """The same by plain products: where samples share a, and on an accelerator."""
    white = product(inverse, kernel)
    forms = None if covariance is None else quadratic_forms(white, covariance)
    return Projected(product(mean.mT, white), white.square().sum(-2), forms)


class _Project(torch.autograd.Function):
    AXES = (2, 2, 2, 3)  # of kernel, inverse, mean, covariance

    @staticmethod
    def forward(
        ctx: Any, kernel: Tensor, inverse: Tensor, mean: Tensor, covariance: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        lead = torch.broadcast_shapes(kernel.shape[:-2], inverse.shape[:-2])
        white = kernel.new_empty(*lead, *kernel.shape[-2:])
        means = kernel.new_empty(*lead, mean.shape[-1], kernel.shape[-1])
        squares = kernel.new_empty(*lead, kernel.shape[-1])
        forms = None if covariance is None else torch.empty_like(means)
        given, made = (kernel, inverse, mean, covariance), (white, means, squares, forms)
        work = kernel.new_empty(kernel.shape[-2:])
        for k, r, m, s, a, f, n, q in samples(lead, (*_Project.AXES, 2, 2, 1, 2), *given, *made):
            torch.mm(r, k, out=a)
            torch.mm(m.mT, a, out=f)
            torch.sum(torch.mul(a, a, out=work), 0, out=n)
            if s is not None:
                write_forms(a, s, q)
        ctx.save_for_backward(*given, white)
        return means, squares, forms

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, g_mean: Tensor, g_square: Tensor, g_forms: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        *given, white = ctx.saved_tensors
        gradients = [None if value is None else torch.zeros_like(value) for value in given]
        axes = (*_Project.AXES, 2, 2, 1, 2, *_Project.AXES)
        d_a = white.new_empty(white.shape[-2:])
        every = samples(white.shape[:-2], axes, *given, white, g_mean, g_square, g_forms, *gradients)
        for k, r, m, s, a, of_mean, of_square, of_forms, d_k, d_r, d_m, d_s in every:
            torch.mul(a, of_square, out=d_a)
            d_a.addmm_(m, of_mean, beta=2.0)
            if s is not None:
                add_form_gradients(a, s, of_forms, d_a, d_s)
            d_m.addmm_(a, of_mean.mT)
            d_r.addmm_(d_a, k.mT)
            d_k.addmm_(r.mT, d_a)
        return tuple(gradients)
