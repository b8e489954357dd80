"""A prior with correlated weights within the kernel of a convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from gilib.arguments import one_of
from gilib.distributions import InverseWishart
from gilib.linalg import KroneckerIdentity, SymmetricOperator
from gilib.priors.base import Prior, PriorModule
from gilib.sites import Site


@dataclass(frozen=True)
class SpatialIWPrior(Prior):
    """Correlated weights within a convolution's kernel (Eq. 19).

        C = Id_channels ⊗ Ω⁻¹,    P(Ω) = IW((K+1) Id, K+1),    Q(Ω) = IW((K+1) Id + Ψ, K+1+ν).

    The paper prints N_{l-1}+1 instead of K+1; if it means the size of Ω, Ω⁻¹ has mean Id. Ψ = ν L Lᵀ with L
    lower triangular, initially Id. For a dense layer K = 1, and Ω is one scale.

    Args:
        scaling: "paper" for a precision I · (Id ⊗ Ω), I = channels · K, and Ψ_0 = (K+1) Id; or "reference"
            for the reference implementation's channels · (Id ⊗ Ω) and Ψ_0 = K Id, whose prior variance is
            about K times larger.
        initial_log_nu: initial value of log ν, our choice (the paper and its code state none).

    >>> SpatialIWPrior(scaling="reference").scaling
    'reference'
    """

    scaling: Annotated[str, one_of(("paper", "reference"))] = "paper"
    initial_log_nu: float = 2.0

    def build(self, site: Site, like: Tensor) -> PriorModule:
        return _LearnedSpatial(self, site.channels, site.kernel_pixels, like)


class _LearnedSpatial(PriorModule):
    def __init__(self, spec: SpatialIWPrior, channels: int, pixels: int, like: Tensor):
        super().__init__()
        paper = spec.scaling == "paper"
        self.channels, self.pixels, self.noise_size = channels, pixels, pixels**2
        self.factor = channels * pixels if paper else channels
        self.prior_scale = float(pixels + 1 if paper else pixels)
        identity = torch.eye(pixels, dtype=like.dtype, device=like.device)
        self.psi_factor = nn.Parameter(identity.repeat(*like.shape, 1, 1))  # [R, K, K]
        self.log_nu = nn.Parameter(torch.full_like(like, spec.initial_log_nu))  # [R]

    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        degrees = float(self.pixels + 1)
        identity = torch.eye(self.pixels, dtype=noise.dtype, device=noise.device)
        nu, root = self.log_nu.exp(), self.psi_factor.tril()
        scale = self.prior_scale * identity + nu[..., None, None] * (root @ root.mT)
        prior = InverseWishart(
            torch.full_like(identity[0, 0], degrees), self.prior_scale * identity, validate_args=False
        )
        posterior = InverseWishart(degrees + nu, scale, validate_args=False)
        white = noise.unflatten(-1, (self.pixels, self.pixels))
        root = posterior.rsample_cholesky(noise=white)  # [S, R, K, K]
        log_pq = prior.log_prob_cholesky(root) - posterior.log_prob_cholesky(root)
        return KroneckerIdentity(self.factor * (root @ root.mT), self.channels), log_pq
