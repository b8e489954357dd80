"""A sparse process whose noise has one size everywhere."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.layers import GP
from gilib.likelihoods import Gaussian, Likelihood, PerOutputGaussian
from gilib.linalg import cholesky
from gilib.network import Network
from gilib.training.rules.collapsed.bound import Sums, collapsed, evidence, sums_of
from gilib.training.rules.collapsed.model import (
    CollapsedModel,
    SparseProcess,
    in_pieces,
    squares_left_out,
    without_rounding,
)


class SingleProcess(CollapsedModel):
    """One process with Gaussian noise, whose best posterior has a closed form.

    Attributes:
        process: of the outputs.
        likelihood: one noise for all outputs, or one each.
    """

    def __init__(self, process: SparseProcess, likelihood: Gaussian | PerOutputGaussian):
        """Nothing is searched but kernel and noise."""
        self.process, self.likelihood, self.known = process, likelihood, process.parameters

    @property
    def noise(self) -> Tensor:
        """σ², `[G]`: one for all outputs, or one each."""
        return self.likelihood.noise_variance.double().reshape(-1)

    def start(self, x: Tensor, y: Tensor) -> None:
        """There is nothing of its own."""

    def bound(self, x: Tensor, y: Tensor, spacing: Tensor) -> Tensor:
        """That of `gilib.training.Collapsed`."""
        noise = self.noise
        rounding = (spacing.square() / noise).sum() * (len(x) / 24.0)
        if self.process.is_exact(x):
            return evidence(self.process.gram(x), y.double(), noise, self.process.layer.jitter) - rounding
        return collapsed(sums_of(self.process.inducing(), x, y), noise)[0] - rounding

    def log_prior(self) -> Tensor:
        """Flat in σ, seen from log σ."""
        return 0.5 * self.noise.log().sum()

    def errors(self, x: Tensor, y: Tensor) -> Tensor:
        """Of regression on all other points."""
        return squares_left_out(self.process, self.noise.detach(), x, y)

    @torch.no_grad()
    def unround(self, x: Tensor, spacing: Tensor) -> None:
        """From one noise of several outputs what they have added in the mean."""
        noise, square = self.noise, spacing.square().to(self.noise)
        square = square.mean(-1, keepdim=True) if len(noise) == 1 else square
        self.likelihood.scale_noise(
            (without_rounding(noise, square) / noise).view_as(self.likelihood.noise_variance)
        )

    @torch.no_grad()
    def solve_posterior(self, x: Tensor, y: Tensor) -> Tensor:
        """Q(w_o) = N(B⁻¹ A y_o / σ², B⁻¹), B = Id + A Aᵀ / σ²."""
        inducing, posterior = self.process.inducing(), self.process.posterior
        bound, mean, factor = collapsed(
            Sums.over(sums_of(inducing, *piece) for piece in in_pieces(x, y)), self.noise
        )
        covariance = torch.cholesky_inverse(factor).expand(y.shape[-1], -1, -1)
        posterior.mean.copy_(mean)
        posterior.root.copy_(cholesky(covariance, "the covariance of the inducing outputs"))
        return bound


def single_process(net: Network, likelihood: Likelihood) -> SingleProcess:
    """The model of a network of one process.

    Raises:
        ValueError: for other networks, posteriors and likelihoods.
    """
    layers = list(net.layers)
    if len(layers) != 1 or not isinstance(layers[0], GP) or net.replicas:
        raise ValueError(
            "the best posterior is known for a network of one gilib.GP without replicas, as "
            f"gilib.models.sparse_gp makes it, got {net}"
        )
    process = SparseProcess(layers[0])
    if not isinstance(likelihood, Gaussian | PerOutputGaussian):
        raise ValueError(f"the noise must be Gaussian or PerOutputGaussian, got {likelihood}")
    return SingleProcess(process, likelihood)
