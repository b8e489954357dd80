"""Gaussian outputs that are independent between points and correlated within each point."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.draws.functions import Function
from gilib.randomness import noise_at


@dataclass(frozen=True)
class CorrelatedOutputs:
    """Samples of N(x̃ M, x̃ V x̃ᵀ Σ), drawn as x̃ M + √(x̃ V x̃ᵀ) C z, independently at N points.

    Attributes:
        mean: the layer's function with weights M.
        spread: the layer's function with weights T⁻ᵀ, where V = T⁻ᵀ T⁻¹; its squared outputs sum to x̃ V x̃ᵀ.
        root: C, a factor of Σ = C Cᵀ, `[R, O, O]`.
        noise: z, standard normals `[S, R, N, O]`.
    """

    mean: Function
    spread: Function
    root: Tensor
    noise: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Return outputs `[S, R, N, O]` at inputs `x`, `[..., N, D]`."""
        centre = self.mean(x)
        # clamped, because the square root has an infinite slope at zero
        size = self.spread(x).square().sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
        return centre + size * (noise_at(self.noise, centre, -2).to(centre.dtype) @ self.root.mT)
