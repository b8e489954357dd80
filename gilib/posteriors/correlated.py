"""Outputs that are sampled point by point, where what is left to be sampled correlates over outputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.draws.functions import Function
from gilib.randomness import noise_at


@dataclass(frozen=True)
class CorrelatedOutputs:
    """x ↦ x̃ M + √(x̃ V x̃ᵀ) C z, independently at N points.

    Attributes:
        mean: the function of the mean weights.
        spread: the function of T⁻ᵀ for weights, whose squares sum to x̃ V x̃ᵀ.
        root: C, of Σ = C Cᵀ, `[R, O, O]`.
        noise: z, `[S, R, N, O]`.
    """

    mean: Function
    spread: Function
    root: Tensor
    noise: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Sample the outputs at `x`, `[..., N, D]`."""
        centre = self.mean(x)
        size = self.spread(x).square().sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
        return centre + size * (noise_at(self.noise, centre, -2).to(centre.dtype) @ self.root.mT)
