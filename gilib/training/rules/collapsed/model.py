"""The models that the rule `Collapsed` can train: what it searches, and what it sets in closed form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gilib.layers import GP
from gilib.linalg import cholesky
from gilib.posteriors.free import FreeInducing
from gilib.processes import Inducing
from gilib.training.rules.collapsed.bound import Sums, collapsed, sums_of

AT_ONCE = 2000  # points whose cross-covariances are held in memory while no gradients are needed
WHOLE = 20000  # points whose cross-covariances are held with their gradients: half a gigabyte of 500
MIN_SHARE = 1e-4  # lower limit of 1 - leverage: how much of a residual is not the point's own doing


class CollapsedModel(ABC):
    """A model whose bound has a closed form under its best posterior.

    Attributes:
        known: parameters of the network that are not searched, because the model sets them or leaves them as
            they are.
        own: parameters that are searched besides those of network and likelihood.
    """

    known: Sequence[nn.Parameter]
    own: Sequence[nn.Parameter] = ()

    def start(self, x: Tensor, y: Tensor, weights: Tensor) -> None:  # noqa: B027
        """Give `own` values that fit the data; called before the first step. By default, do nothing."""

    @abstractmethod
    def bound(self, x: Tensor, y: Tensor, weights: Tensor, spacing: Tensor) -> Tensor:
        """Return the collapsed bound of all points minus the cost of rounding, in nats; differentiable.

        Args:
            x: inputs, `[N, D]`.
            y: targets, `[N, O]`.
            weights: how many rows each of them counts as, `[N]`, in float64.
            spacing: δ, the distance between targets that rounding leaves, `[O]`; 0 for exact targets.
        """

    def log_prior(self) -> Tensor:
        """Return the log prior density of the noise, up to a constant; used if kernels have a prior."""
        return torch.zeros(())

    def errors(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Return mean squared leave-one-out errors, `[O]`, as if the noise were σ² everywhere.

        Needed by models of targets that can be rounded.
        """
        raise NotImplementedError

    def unround(self, x: Tensor, weights: Tensor, spacing: Tensor) -> None:  # noqa: B027
        """Subtract the variance of rounding, δ² / 12, from the noise if that is learned; by default none is.

        The arguments are those of `bound`.
        """

    @abstractmethod
    def solve_posterior(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Set the posteriors to the best ones, and return the bound without the cost of rounding."""


def without_rounding(variance: Tensor, square: Tensor) -> Tensor:
    """Return σ² - δ² / 12, but at least the smaller of σ² and δ² / 48.

    The rule treats targets with less noise than δ² / 48 as exact.

    >>> without_rounding(torch.tensor([1.0, 0.1, 0.01]), torch.tensor(0.96))
    tensor([0.9200, 0.0200, 0.0100])
    """
    added = square / 12.0
    return torch.maximum(variance - added, variance.minimum(0.25 * added))


class SparseProcess:
    """A `GP` layer with `FreeGaussian`: its kernel, its inducing inputs and its posterior.

    Attributes:
        layer: the process.
        posterior: the posterior over its inducing outputs.
    """

    def __init__(self, layer: GP, white: bool = False):
        """Store layer and posterior.

        Raises:
            ValueError: if the layer has another kind of posterior, or, unless `white`, a kernel with white
                noise.
        """
        if not isinstance(layer.weights, FreeInducing):
            raise ValueError(f"the process must have the posterior FreeGaussian, got {layer.posterior}")
        self.layer, self.posterior = layer, layer.weights
        assert layer.hyperparameters is not None
        kernel = layer.hyperparameters()
        if not white and kernel.without_white() is not kernel:
            raise ValueError(
                f"the kernel {layer.kernel} has white noise, and so has the likelihood, which learns it "
                "better: leave gilib.kernels.White out"
            )

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
        assert self.layer.hyperparameters is not None
        return Inducing.of(self.layer.hyperparameters(), self.points.detach(), self.layer.jitter)

    def set_posterior(self, mean: Tensor, factor: Tensor, outputs: int | slice = slice(None)) -> None:
        """Set Q(w_o) of some outputs to N(mean, (T Tᵀ)⁻¹), with mean `[M, O]` and T `[G, M, M]`."""
        covariance = torch.cholesky_inverse(factor)
        self.posterior.mean[:, outputs] = mean.to(self.posterior.mean)
        root = cholesky(covariance, "the covariance of the inducing outputs")
        self.posterior.root[outputs] = root.to(self.posterior.root)

    def is_exact(self, x: Tensor) -> bool:
        """Return whether the inducing inputs are the points themselves, in the same order."""
        return self.points.shape == x.shape and bool((self.points.detach() == x).all())

    def gram(self, x: Tensor) -> Tensor:
        """Return the kernel at all pairs of points, `[N, N]`, in float64."""
        assert self.layer.hyperparameters is not None
        return self.layer.hyperparameters().gram(x.double())


@torch.no_grad()
def left_out(
    process: SparseProcess, noise: Tensor, x: Tensor, y: Tensor, weights: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield, for pieces of the data, points, residuals e, 1 - h, where h is their leverage, and weights.

    The leave-one-out error of a point is e / (1 - h). The leverage in the regression on a(x) is
    h = |T⁻¹ a|² / σ², where B = T Tᵀ. If all points are inducing points, these are the leave-one-out errors
    of exact regression. Of a row that counts as several, one is left out; of a part of a row, all of it.

    Args:
        process: the process, with its kernel.
        noise: σ², `[G]`.
        x: inputs, `[N, D]`.
        y: targets, `[N, O]`.
        weights: w, `[N]`.
    """
    inducing, pieces = process.inducing(), list(in_pieces(x.double(), y.double(), weights))
    _, mean, factor = collapsed(Sums.over(sums_of(inducing, *piece) for piece in pieces), noise)
    for x_part, y_part, w_part in pieces:
        white = inducing.white(x_part)
        solved = torch.linalg.solve_triangular(factor, white.mT, upper=False)  # [G, M, N]
        left = 1.0 - w_part.clamp_max(1.0)[:, None] * solved.square().sum(-2).mT / noise
        yield x_part, y_part - white @ mean, left.clamp_min(MIN_SHARE), w_part[:, None]


def squares_left_out(process: SparseProcess, noise: Tensor, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Return the mean squared leave-one-out error of the regression, `[O]`."""
    parts = left_out(process, noise, x, y, weights)
    squares = [(own * (residual / left).square()).sum(0) for _, residual, left, own in parts]
    return torch.stack(squares).sum(0) / weights.sum()


def summed(process: SparseProcess, *data: Tensor) -> Sums:
    """Compute the sums over all data, in pieces if they are many, so that memory does not grow with them.

    The sums of a piece are computed again for their gradient.

    Args:
        process: the process.
        data: x, y, weights and possibly the variance of the noise, as for `sums_of`.
    """
    inducing = process.inducing()
    if len(data[0]) <= WHOLE:
        return sums_of(inducing, *data)
    pieces = in_pieces(*data)
    return Sums.over(Sums(*checkpoint(sums_of, inducing, *piece, use_reentrant=False)) for piece in pieces)


def in_pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors into pieces of at most `AT_ONCE` points."""
    return zip(*(tensor.split(AT_ONCE, 0) for tensor in tensors), strict=True)
