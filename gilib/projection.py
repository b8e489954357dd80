"""What a process is at many points given its inducing outputs, one sample after the other.

With kernel values k = k(x, Z), R⁻¹, and w_o ~ N(m_o, S_o): a = R⁻¹ k, then aᵀ m_o, |a|² and aᵀ S_o a. Of each
sample these are some hundred kilobytes, which stay in cache from the first product to the last; written for
all samples at once they travel to memory and back a dozen times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gilib.linalg.samples import product, samples


class Projected(NamedTuple):
    """What the mean and the variance at N points are made of.

    Attributes:
        mean: aᵀ m_o, `[..., N, O]`.
        square: |a|², `[..., N, 1]`.
        forms: aᵀ S_o a, `[..., N, O]`; None without S.
    """

    mean: Tensor
    square: Tensor
    forms: Tensor | None


def project(kernel: Tensor, inverse: Tensor, mean: Tensor, covariance: Tensor | None) -> Projected:
    """Project the law of w onto points.

    Args:
        kernel: k(x, Z), `[..., N, M]`.
        inverse: R⁻¹, `[..., M, M]`.
        mean: m, `[..., M, O]`.
        covariance: S, `[..., O, M, M]`, symmetric, or None. Leading axes broadcast.
    """
    columns, outputs = mean, mean.shape[-1]
    if covariance is not None:
        matrices = covariance.movedim(-3, -2).flatten(-2)  # [..., M, O M]
        lead = torch.broadcast_shapes(matrices.shape[:-2], mean.shape[:-2])
        parts = [part.expand(*lead, *part.shape[-2:]) for part in (matrices, mean)]
        columns = torch.cat(parts, -1)
    lead = torch.broadcast_shapes(kernel.shape[:-2], inverse.shape[:-2])
    shared = torch.broadcast_shapes(lead, columns.shape[:-2]) != lead
    if shared or kernel.device.type != "cpu":
        return projected_at_once(kernel, inverse, columns, outputs)
    return Projected(*_Project.apply(kernel, inverse, columns, outputs))


def projected_at_once(kernel: Tensor, inverse: Tensor, columns: Tensor, outputs: int) -> Projected:
    """The same by plain products: where samples share a, and on an accelerator.

    Args:
        kernel: as for `project`.
        inverse: likewise.
        columns: S_1, ..., S_O (or none of them), m_1, ..., m_O side by side, `[..., M, O M + O]`.
        outputs: O.
    """
    white = product(kernel, inverse.mT)
    products = product(white, columns)
    matrices, mean = products[..., :-outputs], products[..., -outputs:]
    forms = None
    if matrices.shape[-1]:
        forms = (matrices.unflatten(-1, (outputs, -1)) * white[..., None, :]).sum(-1)
    return Projected(mean, white.square().sum(-1, keepdim=True), forms)


class _Project(torch.autograd.Function):
    """With upstream f, n and q of aᵀm, |a|² and aᵀSa, that of a is Σ_o f_o m_o + 2 n a + 2 Σ_o q_o S_o a.

    The products S_o a are kept: reading them takes a tenth of the time of forming them.
    """

    @staticmethod
    def forward(
        ctx: Any, kernel: Tensor, inverse: Tensor, columns: Tensor, outputs: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        lead = torch.broadcast_shapes(kernel.shape[:-2], inverse.shape[:-2])
        points, size = kernel.shape[-2:]
        widths = size, columns.shape[-1], outputs, 1
        white, products, means, squares = (kernel.new_empty(*lead, points, k) for k in widths)
        forms, work = None, white.new_empty(points, outputs, size)
        if columns.shape[-1] > outputs:
            forms = torch.empty_like(means)
        given, made = (kernel, inverse, columns), (white, products, means, squares, forms)
        for k, r, c, a, p, f, n, q in samples(lead, (2,) * 8, *given, *made):
            torch.mm(k, r.mT, out=a)
            torch.mm(a, c, out=p)
            f.copy_(p[:, -outputs:])
            torch.linalg.vecdot(a, a, out=n[:, 0])
            if q is not None:
                torch.mul(p[:, :-outputs].unflatten(1, (outputs, size)), a[:, None], out=work)
                torch.sum(work, 2, out=q)
        ctx.save_for_backward(*given, white, products)
        return means, squares, forms

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_mean: Tensor, of_square: Tensor, of_forms: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        *given, white, products = ctx.saved_tensors
        gradients = [torch.zeros_like(value) for value in given]
        (points, size), outputs = white.shape[-2:], of_mean.shape[-1]
        d_a, weighted = white.new_empty(points, size), white.new_empty(points, outputs, size)
        upstream = of_mean, of_square, of_forms
        every = samples(white.shape[:-2], (2,) * 11, *given, white, products, *upstream, *gradients)
        for k, r, c, a, p, f, n, q, d_k, d_r, d_c in every:
            torch.mul(a, n, out=d_a)
            if q is not None:
                matrices = p[:, :-outputs].unflatten(1, (outputs, size))
                d_a.add_(torch.bmm(q[:, None], matrices)[:, 0])
                torch.mul(q[..., None], a[:, None], out=weighted)
                d_c[:, :-outputs].addmm_(a.mT, weighted.flatten(1))
            d_a.mul_(2.0).addmm_(f, c[:, -outputs:].mT)
            d_c[:, -outputs:].addmm_(a.mT, f)
            d_r.addmm_(d_a.mT, k)
            d_k.addmm_(d_a, r)
        return *gradients, None
