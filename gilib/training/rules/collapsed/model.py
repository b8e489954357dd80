"""What the rule `Collapsed` searches, and what it sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from gilib.layers import GP
from gilib.posteriors.free import FreeInducing
from gilib.processes import Inducing

AT_ONCE = 2000  # points whose cross-covariances are held while nothing is differentiated


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
    def settle(self, x: Tensor, y: Tensor) -> Tensor:
        """Set the posteriors; returns the bound, without what rounding costs."""


class SparseProcess:
    """A `GP` layer with `FreeGaussian`: its kernel, its inducing inputs, its posterior.

    Attributes:
        layer: the process.
        posterior: over its inducing outputs.
    """

    def __init__(self, layer: GP):
        """Find the posterior.

        Raises:
            ValueError: for another one.
        """
        if not isinstance(layer.weights, FreeInducing):
            raise ValueError(f"the process must have the posterior FreeGaussian, got {layer.posterior}")
        self.layer, self.posterior = layer, layer.weights

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


def in_pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Some points at a time."""
    return zip(*(tensor.split(AT_ONCE, 0) for tensor in tensors), strict=True)
