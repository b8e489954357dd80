"""The dense layer F = X W, with a prior and a posterior over W."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gilib.arguments import Count
from gilib.layers.base import OfVectors
from gilib.layers.weights import WeightLayer
from gilib.linalg.products import matmul
from gilib.posteriors import BuildContext, Posterior
from gilib.priors import Prior
from gilib.sites import DenseWeights, Shape
from gilib.validation import check_points_kind, check_width


class Linear(OfVectors, WeightLayer):
    """A dense layer F = X W with weights W `[I, O]`; a bias is one more input, which is always 1.

    Args:
        in_features: number of inputs, without the bias.
        out_features: O, the number of outputs.
        posterior: posterior over W, such as `Factorised()`; None: `GlobalInducing()`.
        prior: prior over W, such as `ScalePrior()`; None: `NealPrior()`.
        bias: whether a column of ones is appended to the inputs, so that I = in_features + 1.

    >>> layer = Linear(2, 3)
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
        super().__init__(in_features + bias, out_features, posterior, prior)
        self.in_features, self.out_features, self.bias = in_features, out_features, bias

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        check_width(shape, self.in_features, self.describe())
        grow = not self.prior.well_scaled
        self.settle(DenseWeights(self.fan_in, self.out_features, self.bias, grow), context)
        return (self.out_features,)

    def function(self, weights: Tensor) -> LinearFunction:
        return LinearFunction(weights, self.bias)

    def features(self, inducing: Tensor) -> Tensor:
        if not self.bias:
            return inducing
        ones = inducing.new_ones(()).expand(*inducing.shape[:-1], 1)
        return torch.cat([inducing, ones], -1)


class LinearFunction:
    """The function x ↦ x W, `[S, R, I, O]`; if there is a bias, it is the last row of W."""

    def __init__(self, weights: Tensor, bias: bool):
        self.weights, self.bias = weights, bias
        self.width = weights.shape[-2] - bias
        # one split for all calls: each slice would fill a gradient of the whole matrix with zeros
        self._parts: Sequence[Tensor] = weights.split_with_sizes([self.width, 1], -2) if bias else (weights,)

    def __call__(self, x: Tensor) -> Tensor:
        """Map `[..., N, in_features]` to `[S, R, ..., N, O]`."""
        if x.dim() < 2 or x.shape[-1] != self.width:
            raise ValueError(f"a dense layer takes points [..., N, {self.width}], got {list(x.shape)}")
        check_points_kind(x, self.weights)
        outputs = matmul(x, self._parts[0])
        return outputs + self._parts[1] if self.bias else outputs
