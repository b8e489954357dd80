"""A fixed linear map, which serves as the mean function of a Gaussian process."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.arguments import Count
from gilib.draws import AnyDrawn, FixedFunction
from gilib.layers.base import Layer, OfVectors
from gilib.layers.linear import LinearFunction
from gilib.posteriors import BuildContext
from gilib.randomness import Noise
from gilib.sites import Shape
from gilib.validation import check_tensor, check_width


class FixedLinear(OfVectors, Layer):
    """The function x ↦ x P, which is the same in every draw and is not trained.

    Added to a Gaussian process, it is the mean function: `Sum([GP(D, O), FixedLinear(D, O, P)])`.

    Args:
        in_features: D, the number of inputs.
        out_features: O, the number of outputs.
        matrix: P, `[D, O]`; None: the first O columns of the identity.

    >>> layer = FixedLinear(3, 2)
    >>> layer.build((3,), BuildContext())
    (2,)
    >>> layer.draw().function(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[1., 2.]])
    """

    matrix: Tensor

    def __init__(self, in_features: Count, out_features: Count, matrix: Tensor | None = None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        if matrix is None:
            matrix = torch.eye(in_features, out_features)
        if tuple(check_tensor(matrix, "matrix").shape) != (in_features, out_features):
            raise ValueError(
                f"matrix must have shape {[in_features, out_features]} (in_features, out_features), got "
                f"{list(matrix.shape)}"
            )
        self.register_buffer("matrix", matrix.detach().clone())

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        check_width(shape, self.in_features, self.describe())
        self.matrix = self.matrix.to(dtype=context.dtype, device=context.device)
        self.replicas = context.replicas
        return (self.out_features,)

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        return mode(LinearMap(self.matrix.clone(), bias=False), noise.zeros)


class LinearMap(LinearFunction, FixedFunction):
    """The function x ↦ x P, without a bias, which is not random."""
