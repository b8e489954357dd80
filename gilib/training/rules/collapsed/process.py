"""A sparse process whose noise has the same size everywhere."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.layers import GP
from gilib.likelihoods import Gaussian, Likelihood, PerOutputGaussian
from gilib.network import Network
from gilib.training.rules.collapsed.bound import Sums, collapsed, evidence, sums_of
from gilib.training.rules.collapsed.model import (
    CollapsedModel,
    SparseProcess,
    in_pieces,
    squares_left_out,
    summed,
    without_rounding,
)


class SingleProcess(CollapsedModel):
    """One process with Gaussian noise, whose best posterior has a closed form.

    Attributes:
        process: the process of all outputs.
        likelihood: the likelihood, with one noise for all outputs or one for each.
    """

    def __init__(self, process: SparseProcess, likelihood: Gaussian | PerOutputGaussian):
        """Store process and likelihood; only kernel and noise are searched."""
        self.process, self.likelihood, self.known = process, likelihood, process.parameters

    @property
    def noise(self) -> Tensor:
        """The noise variance σ², `[G]`: one for all outputs, or one for each."""
        return self.likelihood.noise_variance.double().reshape(-1)

    def bound(self, x: Tensor, y: Tensor, weights: Tensor, spacing: Tensor) -> Tensor:
        """Return the bound L of `gilib.training.Collapsed`, minus the cost of rounding."""
        noise = self.noise
        rounding = (spacing.square() / noise).sum() * (weights.sum() / 24.0)
        if self.process.is_exact(x):
            jitter = self.process.layer.jitter
            return evidence(self.process.gram(x), y.double(), noise, jitter, weights) - rounding
        return collapsed(summed(self.process, x, y, weights), noise)[0] - rounding

    def log_prior(self) -> Tensor:
        """Return the log density of log σ under a flat prior of σ, which is log σ."""
        return 0.5 * self.noise.log().sum()

    def errors(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Return mean squared leave-one-out errors, `[O]`."""
        return squares_left_out(self.process, self.noise.detach(), x, y, weights)

    @torch.no_grad()
    def unround(self, x: Tensor, weights: Tensor, spacing: Tensor) -> None:
        """Subtract the variance of rounding from each noise; from a shared one, its mean over the outputs."""
        noise, square = self.noise, spacing.square().to(self.noise)
        square = square.mean(-1, keepdim=True) if len(noise) == 1 else square
        self.likelihood.scale_noise(
            (without_rounding(noise, square) / noise).view_as(self.likelihood.noise_variance)
        )

    @torch.no_grad()
    def solve_posterior(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Set Q(w_o) = N(B⁻¹ A y_o / σ², B⁻¹), where B = Id + A Aᵀ / σ², and return the bound."""
        inducing = self.process.inducing()
        bound, mean, factor = collapsed(
            Sums.over(sums_of(inducing, *piece) for piece in in_pieces(x, y, weights)), self.noise
        )
        self.process.set_posterior(mean, factor)
        return bound


def single_process(net: Network, likelihood: Likelihood) -> SingleProcess:
    """Return the model of a network with one process.

    Raises:
        ValueError: for other networks, posteriors and likelihoods.
    """
    layers = list(net.layers)
    if len(layers) != 1 or not isinstance(layers[0], GP) or net.replicas:
        raise ValueError(
            "the best posterior is known only for a network of one gilib.GP without replicas, as "
            f"gilib.models.sparse_gp makes it, got {net}"
        )
    process = SparseProcess(layers[0])
    if not isinstance(likelihood, Gaussian | PerOutputGaussian):
        raise ValueError(f"the noise must be Gaussian or PerOutputGaussian, got {likelihood}")
    return SingleProcess(process, likelihood)
