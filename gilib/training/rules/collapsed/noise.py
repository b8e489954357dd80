"""A sparse process whose log noise variance is a process, too (Lázaro-Gredilla & Titsias, 2011).

Let log σ²(x) = log σ² + g(x), where g(x_n) ~ N(μ_n, τ_n) under Q. Then the best posterior of the mean's
process is the one for Gaussian noise with variance r_n = σ² exp(μ_n - τ_n/2), and the bound under it is

    L = log N(y; 0, AᵀA + diag(r)) - Σ_n (k(x_n, x_n) - |a(x_n)|²) / (2 r_n) - ¼ Σ_n τ_n - KL(Q(g) ‖ P(g)).

A row of weight w counts as w rows, in the two sums and in the first term (`weight_correction`).

Q(g) is a global inducing posterior with one layer: the prior of g, conditioned on pseudo-outputs v at the
inducing inputs of the noise, observed with precisions Λ. In whitened form u = R w, w ~ N(0, Id), this
posterior is w ~ N(B⁻¹ RᵀΛv, B⁻¹), with B = Id + RᵀΛR.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor, nn

from gilib.layers import GP, Concat
from gilib.likelihoods import HeteroscedasticGaussian, Likelihood
from gilib.network import Network
from gilib.training.rules.collapsed import model
from gilib.training.rules.collapsed.bound import Sums, WhitePosterior, collapsed, features_of, sums_of

SHIFT = math.log(2.0) + 0.5772156649015329  # -E log z² of a standard normal z
PRECISION = 2.0 / math.pi**2  # 1 / V log z²
MIN_SQUARE = 1e-4  # lower limit of a squared standardised residual, whose logarithm is taken
WORSE = 4.0  # times the squared errors of constant noise: structure has become noise
MIN_COUNT = 0.1  # points counted for an inducing input that is nearest to none
UNITS = 0.3, 0.1  # of pseudo-outputs and log-precisions, times √(N / Λ) and √N at the start


class ProcessWithNoise(model.CollapsedModel):
    """A process of the mean, f, with a process of the log noise variance, g; the likelihood holds σ².

    The pseudo-outputs v and log Λ are searched in units in which the bound is curved about as along log σ².
    """

    def __init__(
        self, mean: model.SparseProcess, noise: model.SparseProcess, likelihood: HeteroscedasticGaussian
    ):
        self.mean, self.noise, self.likelihood = mean, noise, likelihood
        like, targets = noise.points, len(likelihood.start)
        self.known = [*mean.parameters, *noise.parameters]
        shapes = (len(like), targets), (targets, len(like))
        self.own = [nn.Parameter(like.new_zeros(shape, dtype=torch.float64)) for shape in shapes]
        self.found = [like.new_ones((), dtype=torch.float64)] * 3  # errors of constant noise, and units

    @torch.no_grad()
    def start(self, x: Tensor, y: Tensor, weights: Tensor) -> None:
        """Start the pseudo-outputs from the residuals of constant noise.

        Logarithms of squared standardised leave-one-out residuals, e / (σ √(1 - h)), have mean -1.27 and
        variance π²/2; they are averaged over the points that are nearest to each inducing input.
        """
        sigma, centres = self._variance, self.noise.points.double()
        total = torch.zeros_like(self.own[0])
        count, errors = total.new_zeros(len(total)), torch.zeros_like(sigma)
        for part, residual, left, own in model.left_out(self.mean, sigma, x, y, weights):
            squares = (residual.square() / (sigma * left)).clamp_min(MIN_SQUARE)
            nearest = torch.cdist(part, centres).argmin(-1)
            total.index_add_(0, nearest, own * (squares.log() + SHIFT))
            count.index_add_(0, nearest, own[:, 0])
            errors += (own * (residual / left).square()).sum(0)
        number, precision = weights.sum(), PRECISION * count.clamp_min(MIN_COUNT)
        units = UNITS[0] * (number / precision).sqrt()[:, None], UNITS[1] * number.sqrt()
        self.found = [errors / number, *units]
        self.own[0].copy_(total / torch.where(count > 0.0, count, 1.0)[:, None] / units[0])
        self.own[1].copy_((precision.log() / units[1]).expand_as(self.own[1]))

    def bound(self, x: Tensor, y: Tensor, weights: Tensor, spacing: Tensor) -> Tensor:
        """Return L minus the cost of rounding, δ² / (24 r_n) for every point."""
        posterior = self._posterior()
        variance, doubt = self._at(posterior, x)
        fit = self.mean.bound(x, y, variance, weights)
        rounding = (weights * spacing.square()[:, None] / variance).sum() / 24.0
        return fit - 0.25 * (weights * doubt).sum() - posterior.divergence - rounding

    def errors(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        posterior = self._posterior()
        noise = torch.cat([self._at(posterior, part)[0] for (part,) in model.in_pieces(x)], -1).detach()
        one, columns = weights.new_ones(1), zip(y.split(1, -1), noise, strict=True)
        squares = [model.squares_left_out(self.mean, one, x, own, weights, r) for own, r in columns]
        return torch.cat(squares)

    @torch.no_grad()
    def unround(self, x: Tensor, weights: Tensor, spacing: Tensor) -> None:
        """Scale σ² by the geometric mean of what subtracting the variance of rounding does at every point."""
        posterior, square = self._posterior(), spacing.square().to(self._variance)[:, None]
        total = torch.zeros_like(self._variance)
        for part, own in model.in_pieces(x, weights):
            variance = self._at(posterior, part)[0]
            total += (own * (model.without_rounding(variance, square) / variance).log()).sum(-1)
        self.likelihood.scale_noise((total / weights.sum()).exp())

    @torch.no_grad()
    def solve_posterior(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        posterior, inducing = self._posterior(), self.mean.inducing()
        pieces = list(model.in_pieces(x, y, weights))
        at = [self._at(posterior, x_part) for x_part, *_ in pieces]
        doubts = torch.cat([doubt for _, doubt in at], -1)
        bound = -posterior.divergence - 0.25 * (weights * doubts).sum()
        for o in range(y.shape[-1]):
            parts = zip(pieces, at, strict=True)
            sums = Sums.over(
                sums_of(inducing, x_part, y_part[:, o, None], w_part, variance[o])
                for (x_part, y_part, w_part), (variance, _) in parts
            )
            # These are of data divided by the noise's deviation; the scaling's log determinant is added.
            value, mean, factor = collapsed(sums, torch.ones_like(sums.squares))
            bound = bound + value - 0.5 * (weights * torch.cat([v[o] for v, _ in at]).log()).sum()
            self.mean.set_posterior(mean[:, 0], factor[0], o)
        self.noise.set_posterior(posterior.mean, posterior.factor)
        ratio = float((self.errors(x, y, weights) / self.found[0]).max())
        if ratio > WORSE:
            warnings.warn(
                f"varying noise takes structure for noise: leave-one-out errors are {ratio**0.5:.2g} times "
                "those of constant noise, so that model='gp' has the better mean",
                stacklevel=3,
            )
        return bound

    @property
    def _variance(self) -> Tensor:
        return self.likelihood.noise_variance.double().reshape(-1)

    def _posterior(self) -> WhitePosterior:
        pseudo, log_precision = (unit * own for unit, own in zip(self.found[1:], self.own, strict=True))
        return WhitePosterior.of(self.noise.inducing().root, pseudo, log_precision.exp())

    def _at(self, posterior: WhitePosterior, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the effective variance r and the variance τ of the log noise at points, both `[O, N]`."""
        mean, doubt = posterior.at(*features_of(self.noise.inducing(), x))
        return (mean - 0.5 * doubt).exp() * self._variance[:, None], doubt


def process_with_noise(net: Network, likelihood: Likelihood) -> ProcessWithNoise:
    """Return the model of a network with two processes side by side, or raise for other networks."""
    layers = list(net.layers)
    branches = list(layers[0]) if len(layers) == 1 and isinstance(layers[0], Concat) else []
    if len(branches) != 2 or not all(isinstance(branch, GP) for branch in branches) or net.replicas:
        raise ValueError(
            "Collapsed trains varying noise in one gilib.layers.Concat of two gilib.GP, for mean "
            f"and log variance, without replicas, as gilib.models.heteroscedastic_gp makes it, got {net}"
        )
    mean, noise = (model.SparseProcess(branch) for branch in branches if isinstance(branch, GP))
    assert isinstance(likelihood, HeteroscedasticGaussian)
    widths, targets = (mean.layer.out_features, noise.layer.out_features), len(likelihood.start)
    if widths != (targets, targets):
        raise ValueError(
            f"mean and log variance of {targets} targets need {targets} outputs of each process, got {widths}"
        )
    return ProcessWithNoise(mean, noise, likelihood)
