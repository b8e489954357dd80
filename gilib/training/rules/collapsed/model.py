"""Models that the rule `Collapsed` can train, and the simplest one: a process with constant noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gilib.kernels import KernelFunction
from gilib.layers import GP
from gilib.likelihoods import Gaussian, Likelihood, PerOutputGaussian
from gilib.linalg import cholesky
from gilib.network import Network
from gilib.posteriors.free import FreeInducing
from gilib.processes import Inducing
from gilib.training.rules.collapsed.bound import Sums, collapsed, evidence, sums_of

AT_ONCE = 2000  # points whose cross-covariances are held in memory while no gradients are needed
WHOLE = 20000  # points whose cross-covariances are held with their gradients: half a gigabyte of 500
MIN_SHARE = 1e-9  # lower limit of 1 - leverage, which rounding may take below zero


class CollapsedModel(ABC):
    """A model whose bound has a closed form under its best posterior."""

    known: Sequence[nn.Parameter]  # of the network, not searched, because the model sets them or leaves them
    own: Sequence[nn.Parameter] = ()  # searched besides those of network and likelihood
    found: Sequence[Tensor] = ()  # by `start`; a checkpoint holds it

    def start(self, x: Tensor, y: Tensor, weights: Tensor) -> None:  # noqa: B027
        """Give `own` values that fit the data; called before the first step. By default, do nothing."""

    @abstractmethod
    def bound(self, x: Tensor, y: Tensor, weights: Tensor, spacing: Tensor) -> Tensor:
        """Return the collapsed bound of all points minus the cost of rounding, in nats; differentiable.

        Inputs are `[N, D]`, targets `[N, O]`; weights, `[N]`, say how many rows each counts as, and δ, `[O]`,
        is the distance between targets that rounding leaves, 0 for exact ones.
        """

    def log_prior(self) -> Tensor:
        """Return the log prior density of the noise, up to a constant; used if kernels have a prior."""
        return torch.zeros(())

    def errors(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Return mean squared leave-one-out errors, `[O]`."""
        raise NotImplementedError

    def unround(self, x: Tensor, weights: Tensor, spacing: Tensor) -> None:  # noqa: B027
        """Subtract the variance of rounding, δ² / 12, from noise that is learned; by default none is."""

    @abstractmethod
    def solve_posterior(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Set the posteriors to the best ones, and return the bound without the cost of rounding."""


def without_rounding(variance: Tensor, square: Tensor) -> Tensor:
    """Return σ² - δ² / 12, but at least the smaller of σ² and δ² / 48.

    >>> without_rounding(torch.tensor([1.0, 0.1, 0.01]), torch.tensor(0.96))
    tensor([0.9200, 0.0200, 0.0100])
    """
    added = square / 12.0
    return torch.maximum(variance - added, variance.minimum(0.25 * added))


class SparseProcess:
    """A `GP` layer with `FreeGaussian`: its kernel, its inducing inputs and its posterior."""

    def __init__(self, layer: GP, white: bool = False):
        if not isinstance(layer.weights, FreeInducing):
            raise ValueError(f"the process must have the posterior FreeGaussian, got {layer.posterior}")
        self.layer, self.posterior = layer, layer.weights
        kernel = self.kernel
        if not white and kernel.without_white() is not kernel:
            raise ValueError(
                f"the kernel {layer.kernel} has white noise, and so has the likelihood, which learns it "
                "better: leave gilib.kernels.White out"
            )

    @property
    def kernel(self) -> KernelFunction:
        """The kernel with its present values."""
        assert self.layer.hyperparameters is not None
        return self.layer.hyperparameters()

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters of the posterior, and the inducing inputs."""
        return [*self.posterior.gaussian_parameters, self.points]

    @property
    def points(self) -> nn.Parameter:
        """The inducing inputs Z, `[M, D]`."""
        assert self.layer.inducing_inputs is not None
        return self.layer.inducing_inputs

    def inducing(self) -> Inducing:
        """Return kernel and inducing inputs together."""
        return Inducing.of(self.kernel, self.points.detach(), self.layer.jitter)

    def set_posterior(self, mean: Tensor, factor: Tensor, outputs: int | slice = slice(None)) -> None:
        """Set Q(w_o) of some outputs to N(mean, (T Tᵀ)⁻¹), with mean `[M, O]` and T `[G, M, M]`."""
        covariance = torch.cholesky_inverse(factor)
        self.posterior.mean[:, outputs] = mean.to(self.posterior.mean)
        root = cholesky(covariance, "the covariance of the inducing outputs")
        self.posterior.root[outputs] = root.to(self.posterior.root)

    def bound(self, x: Tensor, y: Tensor, noise: Tensor, weights: Tensor) -> Tensor:
        """Return the bound under the best posterior, for noise σ² `[G]`, or at every point, `[O, N]`."""
        if self.points.shape == x.shape and bool((self.points.detach() == x).all()):
            return evidence(self.kernel.gram(x.double()), y.double(), noise, self.layer.jitter, weights)
        if noise.dim() == 1:
            return collapsed(summed(self, x, y, weights), noise)[0]
        total = -0.5 * (weights * noise.log()).sum()
        for column, own in zip(y.mT, noise, strict=True):
            sums = summed(self, x, column[:, None], weights, own)
            total = total + collapsed(sums, torch.ones_like(sums.squares))[0]
        return total


@torch.no_grad()
def left_out(
    process: SparseProcess,
    noise: Tensor,
    x: Tensor,
    y: Tensor,
    weights: Tensor,
    varying: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield, for pieces of the data, points, residuals e, 1 - h, where h is their leverage, and weights.

    The leave-one-out error of a point is e / (1 - h), with h = |T⁻¹ a|² / σ² and B = T Tᵀ; with all points as
    inducing ones that of exact regression. Of a row that counts as several, one is left out. The noise has
    variance σ², `[G]`, times `varying`, `[N]`.
    """
    varying = torch.ones_like(weights) if varying is None else varying
    inducing, pieces = process.inducing(), list(in_pieces(x.double(), y.double(), weights, varying))
    _, mean, factor = collapsed(Sums.over(sums_of(inducing, *piece) for piece in pieces), noise)
    for x_part, y_part, w_part, own in pieces:
        white = inducing.white(x_part)
        solved = torch.linalg.solve_triangular(factor, white.mT, upper=False)  # [G, M, N]
        left = 1.0 - (w_part.clamp_max(1.0) / own)[:, None] * solved.square().sum(-2).mT / noise
        yield x_part, y_part - white @ mean, left.clamp_min(MIN_SHARE), w_part[:, None]


def squares_left_out(process: SparseProcess, noise: Tensor, *data: Tensor) -> Tensor:
    """Return the mean squared leave-one-out error of the regression, `[O]`."""
    parts, weights = left_out(process, noise, *data), data[2]
    squares = [(own * (residual / left).square()).sum(0) for _, residual, left, own in parts]
    return torch.stack(squares).sum(0) / weights.sum()


def summed(process: SparseProcess, *data: Tensor) -> Sums:
    """Compute `sums_of` all data; in pieces if they are many, which are computed again for their gradient."""
    inducing = process.inducing()
    if len(data[0]) <= WHOLE:
        return sums_of(inducing, *data)
    pieces = in_pieces(*data)
    return Sums.over(Sums(*checkpoint(sums_of, inducing, *piece, use_reentrant=False)) for piece in pieces)


def in_pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors into pieces of at most `AT_ONCE` points."""
    return zip(*(tensor.split(AT_ONCE, 0) for tensor in tensors), strict=True)


class SingleProcess(CollapsedModel):
    """One process for all outputs, with noise of the same size everywhere."""

    def __init__(self, process: SparseProcess, likelihood: Gaussian | PerOutputGaussian):
        self.process, self.likelihood, self.known = process, likelihood, process.parameters

    @property
    def noise(self) -> Tensor:
        """The noise variance σ², `[G]`; one for all outputs, or one for each."""
        return self.likelihood.noise_variance.double().reshape(-1)

    def bound(self, x: Tensor, y: Tensor, weights: Tensor, spacing: Tensor) -> Tensor:
        noise = self.noise
        rounding = (spacing.square() / noise).sum() * (weights.sum() / 24.0)
        return self.process.bound(x, y, noise, weights) - rounding

    def log_prior(self) -> Tensor:
        return 0.5 * self.noise.log().sum()

    def errors(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
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
        inducing = self.process.inducing()
        bound, mean, factor = collapsed(
            Sums.over(sums_of(inducing, *piece) for piece in in_pieces(x, y, weights)), self.noise
        )
        self.process.set_posterior(mean, factor)
        return bound


def single_process(net: Network, likelihood: Likelihood) -> SingleProcess:
    """Return the model of a network with one process, or raise for other networks and likelihoods."""
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
