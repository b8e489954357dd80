"""Exponentials of products of a few coordinates: the values of squared exponential kernels."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gilib.linalg.products import product
from gilib.linalg.samples import leading, one_by_one, samples

LOG2_E = 1.0 / math.log(2.0)
LARGE = 2**14  # values of one sample, measured: at 10 000 all samples at once are as fast


class Exponents(NamedTuple):
    """What exp(leftᵀ @ right) is made of, for those who evaluate it in pieces.

    Exponents are in the arithmetic of the coordinates, values in that of `dtype`.

    Attributes:
        left: `[..., D, N]`, few coordinates of many points.
        right: `[..., D, M]`; leading axes broadcast.
        dtype: of the values.

    >>> Exponents(torch.zeros(1, 2), torch.ones(1, 3), torch.float32).values()
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """

    left: Tensor
    right: Tensor
    dtype: torch.dtype

    def values(self) -> Tensor:
        """`[..., N, M]`; where nobody asks for a gradient a large sample at a time, in a cache."""
        left, right, dtype = self
        lead, size = leading(left, right), left.shape[-1] * right.shape[-1]
        graph = torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)
        if graph or forward_ad._current_level >= 0 or not one_by_one(left, lead, size >= LARGE):
            return product(left.mT, right).to(dtype).exp()
        values = left.new_empty(*lead, left.shape[-1], right.shape[-1], dtype=dtype)
        exponents = left.new_empty(values.shape[-2:])
        for a, b, out in samples(lead, left, right, values):
            exponential(a, b, exponents, out)
        return values


def exponential(left: Tensor, right: Tensor, exponents: Tensor, out: Tensor) -> Tensor:
    """The values of one sample, `[N, M]`, into `out`, by way of `exponents`; not differentiable.

    As powers of two, which torch computes with all of a processor's width; those of e go to MKL, which takes
    four times as long on AMD's processors.
    """
    torch.addmm(exponents, left.mT, right, beta=0.0, alpha=LOG2_E, out=exponents)
    return out.copy_(exponents).exp2_()
