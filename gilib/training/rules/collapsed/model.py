"""What the rule `Collapsed` searches, and what it sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from gilib.layers import GP
from gilib.posteriors.free import FreeInducing
from gilib.processes import Inducing
from gilib.training.rules.collapsed.bound import Sums, collapsed, sums_of

AT_ONCE = 2000  # points whose cross-covariances are held while nothing is differentiated
LEAST_SHARE = 1e-4  # of a residual that is not a point's own doing


class CollapsedModel(ABC):
    """A model whose bound is known under posteriors that nobody has to search for.

    Attributes:
        known: parameters of the network that are not searched.
        own: those that are, beside the network's and the likelihood's.
    """

    known: Sequence[nn.Parameter]
    own: Sequence[nn.Parameter] = ()

    @abstractmethod
    def start(self, x: Tensor, y: Tensor) -> None:
        """Before the first step: give `own` values that fit the data."""

    @abstractmethod
    def bound(self, x: Tensor, y: Tensor, spacing: Tensor) -> Tensor:
        """The collapsed bound of all points less what rounding costs, nats; differentiable.

        Args:
            x: `[N, D]`.
            y: `[N, O]`.
            spacing: δ, `[O]`.
        """

    @abstractmethod
    def log_prior(self) -> Tensor:
        """Of the noise, where kernels have a prior, too; but for a constant."""

    @abstractmethod
    def errors(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean squares of the errors at points left out, `[O]`, as if the noise were σ² everywhere."""

    @abstractmethod
    def unround(self, x: Tensor, spacing: Tensor) -> None:
        """Take what rounding adds, δ² / 12, from the noise, if that is learned; arguments as above."""

    @abstractmethod
    def settle(self, x: Tensor, y: Tensor) -> Tensor:
        """Set the posteriors; returns the bound, without what rounding costs."""


def without_rounding(variance: Tensor, square: Tensor) -> Tensor:
    """σ² less δ² / 12; of noise that is hardly more, the δ² / 48 below which nothing was rounded.

    >>> without_rounding(torch.tensor([1.0, 0.1, 0.01]), torch.tensor(0.96))
    tensor([0.9200, 0.0200, 0.0100])
    """
    added = square / 12.0
    return torch.maximum(variance - added, variance.minimum(0.25 * added))


class SparseProcess:
    """A `GP` layer with `FreeGaussian`: its kernel, its inducing inputs, its posterior.

    Attributes:
        layer: the process.
        posterior: over its inducing outputs.
    """

    def __init__(self, layer: GP):
        """Find the posterior.

        Raises:
            ValueError: for another one, and for a kernel with white noise.
        """
        if not isinstance(layer.weights, FreeInducing):
            raise ValueError(f"the process must have the posterior FreeGaussian, got {layer.posterior}")
        self.layer, self.posterior = layer, layer.weights
        assert layer.hyperparameters is not None
        kernel = layer.hyperparameters()
        if kernel.without_white() is not kernel:
            raise ValueError(
                f"the kernel {layer.kernel} has white noise, and so has the likelihood, which learns it "
                "better: leave gilib.kernels.White out"
            )

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those of the posterior, and the inducing inputs."""
        return [*self.posterior.gaussian_parameters, self.points]

    @property
    def points(self) -> nn.Parameter:
        """Z, `[M, D]`."""
        assert self.layer.inducing_inputs is not None
        return self.layer.inducing_inputs

    def inducing(self) -> Inducing:
        """Kernel and inducing inputs."""
        assert self.layer.hyperparameters is not None
        return Inducing.of(self.layer.hyperparameters(), self.points.detach(), self.layer.jitter)

    def is_exact(self, x: Tensor) -> bool:
        """Whether the inducing inputs are the points themselves, in the same order."""
        return self.points.shape == x.shape and bool((self.points.detach() == x).all())

    def gram(self, x: Tensor) -> Tensor:
        """The kernel at all pairs of points, `[N, N]`, float64."""
        assert self.layer.hyperparameters is not None
        return self.layer.hyperparameters().gram(x.double())


@torch.no_grad()
def left_out(
    process: SparseProcess, noise: Tensor, x: Tensor, y: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Points, their residuals e and their shares 1 - h, some at a time: e / (1 - h) is off without them.

    The leverage of a point in the regression on a(x) is h = |T⁻¹ a|² / σ², B = T Tᵀ; with all points as
    inducing ones these are the errors of exact regression on all points but one.

    Args:
        process: with its kernel.
        noise: σ², `[G]`.
        x: `[N, D]`.
        y: `[N, O]`.
    """
    inducing = process.inducing()
    _, mean, factor = collapsed(Sums.over(sums_of(inducing, *piece) for piece in in_pieces(x, y)), noise)
    for x_part, y_part in in_pieces(x.double(), y.double()):
        white = inducing.white(x_part)
        solved = torch.linalg.solve_triangular(factor, white.mT, upper=False)  # [G, M, N]
        left = 1.0 - solved.square().sum(-2).mT / noise
        yield x_part, y_part - white @ mean, left.clamp_min(LEAST_SHARE)


def squares_left_out(process: SparseProcess, noise: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Mean squares of the errors of regression on all points but one, `[O]`."""
    parts = left_out(process, noise, x, y)
    return torch.stack([(residual / left).square().sum(0) for _, residual, left in parts]).sum(0) / len(x)


def in_pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Some points at a time."""
    return zip(*(tensor.split(AT_ONCE, 0) for tensor in tensors), strict=True)
