"""Structured deep Gaussian processes (Lindinger et al., 2020), dense and slow: an oracle in plain torch.

Nothing here comes from the library. The unknowns are all inducing outputs, ordered by layer, GP and inducing
point; they are not whitened, have the distribution q(f_M) = N(μ_M, S_M), and exclude mean functions.
Points and samples are leading axes, so that a hundred thousand samples take seconds; all is differentiable.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layer:
    """T GPs of one kernel σ² exp(-½ Σ_d (x_d - x'_d)² / ℓ_d²) and one set of inducing inputs."""

    inputs: Tensor  # Z, `[M, D]`
    lengthscale: Tensor  # ℓ, `[D]`
    variance: Tensor  # σ², a scalar
    outputs: int  # T
    mean: Tensor | None = None  # P of the mean function x ↦ x P, `[D, T]`; None: zero

    @property
    def size(self) -> int:
        """T M, how many inducing outputs it has."""
        return self.outputs * len(self.inputs)

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """k(a, b) of points `[..., A, D]` and `[..., B, D]`, `[..., A, B]`."""
        gaps = (a[..., :, None, :] - b[..., None, :, :]) / self.lengthscale
        return self.variance * torch.exp(-0.5 * gaps.square().sum(-1))

    def mean_function(self, x: Tensor) -> Tensor:
        """At `[..., D]`, `[..., T]`."""
        zero = x.new_zeros(*x.shape[:-1], self.outputs)
        return zero if self.mean is None else x @ self.mean


@dataclass(frozen=True)
class Model:
    """A deep GP and the Gaussian over its inducing outputs."""

    layers: tuple[Layer, ...]  # from the inputs to the outputs
    mean: Tensor  # μ_M, `[n]`
    covariance: Tensor  # S_M, `[n, n]`
    jitter: float  # added to the diagonal of K_MM, times its mean

    def gram(self, k: int) -> Tensor:
        """K_MM of one GP of layer k, with jitter, `[M, M]`."""
        layer = self.layers[k]
        gram = layer.kernel(layer.inputs, layer.inputs)
        return gram + self.jitter * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)

    def prior(self) -> Tensor:
        """The covariance of all inducing outputs under the prior, `[n, n]`."""
        grams = [self.gram(k) for k, layer in enumerate(self.layers) for _ in range(layer.outputs)]
        return torch.block_diag(*grams)

    def unknowns(self, k: int) -> slice:
        """Where those of layer k are."""
        start = sum(layer.size for layer in self.layers[:k])
        return slice(start, start + self.layers[k].size)


def from_whitened(layers: tuple[Layer, ...], mean: Tensor, root: Tensor, jitter: float) -> Model:
    """The model with w ~ N(m, C Cᵀ) for u = blockdiag(R) w, K_MM = R Rᵀ; m `[n]`, C `[n, n]`."""
    prior = Model(layers, mean, root, jitter).prior()
    unwhiten = torch.linalg.cholesky(prior) @ root  # the factor of a block-diagonal matrix is block-diagonal
    return Model(layers, torch.linalg.cholesky(prior) @ mean, unwhiten @ unwhiten.mT, jitter)


def _parts(model: Model, x: Tensor, before: list[Tensor], depth: int) -> tuple[Tensor, Tensor]:
    """μ̃_n and S̃_n of layers 0 ... depth - 1, `[..., T]` and `[..., T, T]`, T of all these layers.

    μ̃^l = K̃_nM^l μ_M^l + mean function,  S̃^ll' = δ_ll' K_nn^l - K̃_nM^l (δ_ll' K_MM^l - S_M^ll') K̃_Mn^l'.
    """
    means, gains = [], []
    for k in range(depth):
        layer, entering = model.layers[k], x if k == 0 else before[k - 1]
        gain = layer.kernel(entering[..., None, :], layer.inputs) @ torch.linalg.inv(model.gram(k))
        gains.append((torch.eye(layer.outputs, dtype=x.dtype)[:, :, None] * gain[..., None, :]).flatten(-2))
        inducing = model.mean[model.unknowns(k)]
        means.append(gains[k] @ inducing + layer.mean_function(entering))
    rows = []
    for k in range(depth):
        blocks = []
        for j in range(depth):
            between = model.covariance[model.unknowns(k), model.unknowns(j)]
            if k == j:
                identity = torch.eye(model.layers[k].outputs, dtype=x.dtype)
                inner = torch.kron(identity, model.gram(k)) - between
                point = model.layers[k].variance * identity
                blocks.append(point - gains[k] @ inner @ gains[k].mT)
            else:
                blocks.append(gains[k] @ between @ gains[j].mT)
        rows.append(torch.cat(blocks, -1))
    return torch.cat(means, -1), torch.cat(rows, -2)


def conditional(model: Model, x: Tensor, before: list[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """μ̂_n^l `[..., T_l]` and Σ̂_n^l `[..., T_l, T_l]` of f_n^l given f_n^{1:l-1} (Theorem 1, Eqs. 10 and 11).

    At the point x `[..., D]`; `before` are the values of layers 0 ... k - 1, `[..., T_k]` each, l = k + 1.
    """
    mean, covariance = _parts(model, x, before, k + 1)
    own = model.layers[k].outputs
    past = mean.shape[-1] - own
    if past == 0:
        return mean, covariance
    gain = covariance[..., past:, :past] @ torch.linalg.inv(covariance[..., :past, :past])
    gap = torch.cat(before[:k], -1) - mean[..., :past]
    moved = mean[..., past:] + (gain @ gap[..., None])[..., 0]
    return moved, covariance[..., past:, past:] - gain @ covariance[..., :past, past:]


def sample_point(model: Model, x: Tensor, eps: Tensor) -> list[Tensor]:
    """The outputs of all layers, `[..., T_l]` each, at points `[..., D]`.

    `eps` `[..., ΣT]` are standard normals, by layer and GP: f^l = μ̂^l + chol(Σ̂^l) ε^l.
    """
    x = x.expand(*eps.shape[:-1], x.shape[-1])
    pieces = eps.split([layer.outputs for layer in model.layers], -1)
    values: list[Tensor] = []
    for k, piece in enumerate(pieces):
        mean, covariance = conditional(model, x, values, k)
        values.append(mean + (torch.linalg.cholesky(covariance) @ piece[..., None])[..., 0])
    return values


def kl(model: Model) -> Tensor:
    """KL(N(μ_M, S_M) ‖ N(0, blockdiag(K_MM))) by dense matrices."""
    prior, mean = model.prior(), model.mean
    inverse = torch.linalg.inv(prior)
    trace, quadratic = (inverse * model.covariance).sum(), mean @ inverse @ mean
    return 0.5 * (trace + quadratic - len(mean) + torch.logdet(prior) - torch.logdet(model.covariance))


def sample_by_inducing_outputs(model: Model, x: Tensor, generator: torch.Generator, n: int) -> list[Tensor]:
    """Brute force: draw u, then the layers one after the other at P points `[P, D]`; `[n, P, T_l]` each.

    Given u the layers decouple: f^l_t | u ~ N(mean function + K̃ u_t, k - K̃ K_MM K̃ᵀ), points jointly.
    """
    z = torch.randn(n, len(model.mean), generator=generator, dtype=torch.float64)
    u = model.mean + z @ torch.linalg.cholesky(model.covariance).mT
    entering, values = x, []
    for k, layer in enumerate(model.layers):
        cross = layer.kernel(entering, layer.inputs)
        gain = cross @ torch.linalg.inv(model.gram(k))
        left = layer.kernel(entering, entering) - gain @ cross.mT
        own = u[:, model.unknowns(k)].unflatten(-1, (layer.outputs, -1))
        mean = layer.mean_function(entering) + gain @ own.mT
        z = torch.randn(mean.shape, generator=generator, dtype=torch.float64)
        entering = mean + torch.linalg.cholesky(left) @ z
        values.append(entering)
    return values


def last_moments(model: Model, x: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    """μ̂^L and the diagonal of Σ̂^L where `sample_point` comes by with these normals, `[..., T_L]` both."""
    x = x.expand(*eps.shape[:-1], x.shape[-1])
    below = sample_point(model, x, eps)[:-1]
    mean, covariance = conditional(model, x, below, len(model.layers) - 1)
    return mean, covariance.diagonal(dim1=-2, dim2=-1)


def elbo_gaussian(model: Model, x: Tensor, y: Tensor, noise_variance: float, eps: Tensor) -> Tensor:
    """The bound `[S]` from normals `[S, N, ΣT]`, the last layer integrated out; x `[N, D]`, y `[N, T_L]`."""
    mean, variance = last_moments(model, x, eps)
    squares = (y - mean).square() + variance
    log_likelihood = -0.5 * (math.log(2 * math.pi * noise_variance) + squares / noise_variance)
    return log_likelihood.sum((-2, -1)) - kl(model)
