"""The dense layer: F = X W, with one of several posteriors over W."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gilib.arguments import Count
from gilib.config import ConfigDict
from gilib.layers.weights import WeightLayer
from gilib.linalg.products import matmul
from gilib.posteriors import BuildContext, Posterior
from gilib.priors import Prior
from gilib.sites import DenseWeights, Shape
from gilib.validation import check_points_kind


class Linear(WeightLayer):
    """A dense layer F = X W, W `[I, O]`; a bias is one more input that is always 1.

    Args:
        in_features: inputs, without the bias.
        out_features: O.
        posterior: `Factorised`, `LocalInducing`, `GlobalInducing` or `FromPrior`.
        prior: `NealPrior`, `StandardPrior`, `ScalePrior` or `SpatialIWPrior`.
        bias: whether a column of ones is appended to the inputs (I = in_features + 1).

    Attributes:
        posterior: as it was specified; `prior` likewise.

    >>> from gilib.posteriors import GlobalInducing
    >>> layer = Linear(2, 3, GlobalInducing())
    >>> layer.build((2,), BuildContext(num_inducing=10))
    (3,)
    >>> function, log_pq = layer.draw(torch.randn(10, 2), num_samples=4)
    >>> function(torch.randn(7, 2)).shape, log_pq.shape
    (torch.Size([4, 7, 3]), torch.Size([4]))
    """

    def __init__(
        self,
        in_features: Count,
        out_features: Count,
        posterior: Posterior | None = None,
        prior: Prior | None = None,
        bias: bool = True,
    ):
        """Describe the layer; its parameters are created by `build`."""
        super().__init__(in_features + bias, out_features, posterior, prior)
        self.in_features, self.out_features, self.bias = in_features, out_features, bias

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Create prior and posterior for inputs of shape (in_features,)."""
        if shape != (self.in_features,):
            raise ValueError(
                f"{self.describe()} takes points of shape [{self.in_features}], got {list(shape)}"
            )
        grow = not self.prior.well_scaled
        self.settle(DenseWeights(self.fan_in, self.out_features, self.bias, grow), context)
        return (self.out_features,)

    def function(self, weights: Tensor) -> LinearFunction:
        """x ↦ x W for `weights` `[S, R, I, O]`."""
        return LinearFunction(weights, self.bias)

    def features(self, inducing: Tensor) -> Tensor:
        """Inducing points with the bias column, `[..., M, I]`."""
        if not self.bias:
            return inducing
        ones = inducing.new_ones(()).expand(*inducing.shape[:-1], 1)
        return torch.cat([inducing, ones], -1)

    def input_shape(self) -> Shape:
        """(in_features,)."""
        return (self.in_features,)

    def describe(self) -> str:
        """Linear(in → out)."""
        return f"Linear({self.in_features} → {self.out_features})"

    def config(self) -> ConfigDict:
        """Widths and specifications."""
        return {
            "in_features": self.in_features,
            "out_features": self.out_features,
            "posterior": self.posterior,
            "prior": self.prior,
            "bias": self.bias,
        }


class LinearFunction:
    """x ↦ x W, the bias in the last row of W if there is one.

    Attributes:
        weights: `[S, R, I, O]`.
    """

    def __init__(self, weights: Tensor, bias: bool):
        """Hold the weights."""
        self.weights, self.bias = weights, bias
        self.width = weights.shape[-2] - bias
        # once for all inputs, and both parts at once: the gradient of a slice is a matrix of zeros around it
        self._parts: Sequence[Tensor] = weights.split_with_sizes([self.width, 1], -2) if bias else (weights,)

    def __call__(self, x: Tensor) -> Tensor:
        """Map `[..., N, in_features]` to `[S, R, ..., N, O]`."""
        if x.dim() < 2 or x.shape[-1] != self.width:
            raise ValueError(f"a dense layer takes points [..., N, {self.width}], got {list(x.shape)}")
        check_points_kind(x, self.weights)
        outputs = matmul(x, self._parts[0])
        return outputs + self._parts[1] if self.bias else outputs
