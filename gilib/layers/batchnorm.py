"""Batch normalisation by statistics of the inducing points, so that a draw is a function."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.arguments import Positive
from gilib.draws import AnyDrawn, FixedFunction
from gilib.layers.base import Layer
from gilib.posteriors import BuildContext
from gilib.randomness import Noise
from gilib.sites import Shape


class InducingBatchNorm(Layer):
    """(x - mean) / √(variance + eps) for each channel, with mean and variance of the inducing points.

    So a draw is a function (Ober & Aitchison, 2021, App. O): statistics of a batch would couple its points.
    There is no learned scale or shift, which would have no prior.

    Args:
        eps: constant that is added to the variance.

    >>> layer = InducingBatchNorm()
    >>> layer.build((2, 4, 4), BuildContext(num_inducing=10))
    (2, 4, 4)
    >>> u = torch.randn(10, 2, 4, 4)
    >>> bool(layer.draw(u)(u).mean().abs() < 1e-6)
    True
    """

    needs_inducing = True

    def __init__(self, eps: Positive = 1e-5):
        super().__init__()
        self.eps = eps
        self._point_dim = 0

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        if len(shape) not in (1, 3):
            raise ValueError(f"InducingBatchNorm takes points [C] or images [C, H, W], got {list(shape)}")
        if context.num_inducing is None or (len(shape) == 1 and context.num_inducing < 2):
            raise ValueError(
                f"InducingBatchNorm takes its statistics from inducing points, got {context.num_inducing}: "
                "give the network inducing_points, or leave the layer out"
            )
        self.replicas, self._point_dim = context.replicas, len(shape)
        return shape

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        assert inducing is not None
        axes = (-1 - self._point_dim, *range(1 - self._point_dim, 0))  # points and pixels
        variance, mean = torch.var_mean(inducing, axes, correction=0, keepdim=True)
        return mode(Normalise(mean, (variance + self.eps).rsqrt(), self._point_dim), noise.zeros)


@dataclass(frozen=True)
class Normalise(FixedFunction):
    """The function x ↦ (x - mean) · scale."""

    mean: Tensor  # one number per channel, `[S, R, 1, C, 1, 1]` for images and `[S, R, 1, C]` for vectors
    scale: Tensor  # 1 / √(variance + eps), of the same shape
    axes: int  # number of axes of a point, of which the first are the channels

    def __call__(self, x: Tensor) -> Tensor:
        """Map `[..., N, C, ...]` to `[S, R, ..., N, C, ...]`."""
        axes = self.axes
        if x.dim() <= axes or x.shape[-axes] != self.mean.shape[-axes]:
            wanted = ", ".join(["..., N", str(self.mean.shape[-axes]), *["height", "width"][: axes - 1]])
            raise ValueError(f"a batch normalisation takes points [{wanted}], got {list(x.shape)}")
        return (x - self.mean) * self.scale
