"""Compute the values of squared exponential kernels as exponentials of inner products."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gilib.linalg.factor import readable
from gilib.linalg.products import product
from gilib.linalg.samples import leading, samples

LOG2_E = 1.0 / math.log(2.0)
MIN_VALUES = 2**14  # of a sample, for a loop over samples; measured: 10 000 values gain nothing


class Exponents(NamedTuple):
    """The two factors of exp(leftᵀ @ right), for callers that evaluate it in pieces.

    The product is computed in the dtype of the factors, its exponential in `dtype`.
    """

    left: Tensor  # `[..., D, N]`, few coordinates of many points
    right: Tensor  # `[..., D, M]`; leading axes broadcast
    dtype: torch.dtype  # dtype of the values

    def values(self) -> Tensor:
        """Return the values, `[..., N, M]`; without gradients, large samples are computed one by one."""
        left, right, dtype = self
        lead, size = leading(left, right), left.shape[-1] * right.shape[-1]
        graph = torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)
        several = math.prod(lead) > 1 and size >= MIN_VALUES
        if graph or forward_ad._current_level >= 0 or not (several and readable(left)):
            return product(left.mT, right).to(dtype).exp()
        values = left.new_empty(*lead, left.shape[-1], right.shape[-1], dtype=dtype)
        exponents = left.new_empty(values.shape[-2:])
        for a, b, out in samples(lead, left, right, values):
            exponential(a, b, exponents, out)
        return values


def exponential(left: Tensor, right: Tensor, exponents: Tensor, out: Tensor) -> Tensor:
    """Write the values of one sample, `[N, M]`, to `out`, with `exponents` as workspace; not differentiable.

    They are powers of two: for powers of e torch calls MKL, which takes four times as long on AMD processors.
    """
    torch.addmm(exponents, left.mT, right, beta=0.0, alpha=LOG2_E, out=exponents)
    return out.copy_(exponents).exp2_()
