"""The convolutional layer, with a prior and a posterior over its kernel."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from gilib.arguments import Count
from gilib.config import ConfigDict
from gilib.convolution import Windows
from gilib.convolution.windows import Pair
from gilib.layers.weights import WeightLayer
from gilib.posteriors import BuildContext, Posterior
from gilib.priors import Prior
from gilib.sites import ConvolutionWeights, Shape
from gilib.validation import check_choice, check_points_kind

BOUNDARIES = {"circular": "circular", "exact": "zero"}


class Conv2d(WeightLayer):
    """A convolution F = X * W with zero padding and without bias; W is `[I, O]` with I = C K.

    The K pixels of a channel are adjacent rows of W.

    Args:
        in_channels: C, the number of input channels.
        out_channels: O, the number of output channels.
        kernel_size: k, an integer or (height, width).
        posterior: posterior over W, such as `Factorised()`; None: `GlobalInducing()`.
        prior: prior over W, such as `SpatialIWPrior()`; None: `NealPrior()`.
        stride: s.
        padding: p; None: (k - 1) / 2, which keeps the size of an image if the stride is 1.
        boundary: how `GlobalInducing` continues the inducing images beyond their borders: "circular" (Ober &
            Aitchison, 2021, App. C), or "exact", by zeros like the layer itself. Both give valid posteriors.

    >>> layer = Conv2d(3, 8, 3)
    >>> layer.build((3, 16, 16), BuildContext(num_inducing=10))
    (8, 16, 16)
    >>> function, log_pq = layer.draw(torch.randn(10, 3, 16, 16), num_samples=2)
    >>> function(torch.randn(7, 3, 16, 16)).shape, log_pq.shape
    (torch.Size([2, 7, 8, 16, 16]), torch.Size([2]))
    """

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        kernel_size: int | Pair,
        posterior: Posterior | None = None,
        prior: Prior | None = None,
        *,
        stride: int | Pair = 1,
        padding: int | Pair | None = None,
        boundary: str = "circular",
    ):
        check_choice(boundary, BOUNDARIES, "boundary")
        windows = Windows.of(kernel_size, stride=stride, padding=padding, boundary="zero")
        super().__init__(in_channels * windows.pixels, out_channels, posterior, prior)
        self.in_channels, self.windows, self.boundary = in_channels, windows, boundary
        self._image_shape: Shape = ()

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        if len(shape) != 3 or shape[0] != self.in_channels:
            raise ValueError(
                f"{self.describe()} takes images of shape [{self.in_channels}, height, width], "
                f"got {list(shape)}"
            )
        size = self.windows.output_size((shape[1], shape[2]))
        self._image_shape = tuple(shape)
        site = ConvolutionWeights(
            self.in_channels,
            self.outputs,
            features_grow=not self.prior.well_scaled,
            windows=replace(self.windows, boundary=BOUNDARIES[self.boundary]),
            image_size=(shape[1], shape[2]),
        )
        self.settle(site, context)
        return (self.outputs, *size)

    def function(self, weights: Tensor) -> Conv2dFunction:
        return Conv2dFunction(weights, self.windows, self._image_shape)

    def input_shape(self) -> Shape | None:
        return self._image_shape or None

    def input_axes(self) -> int:
        return 3

    def describe(self) -> str:
        height, width = self.windows.kernel
        return f"Conv2d({self.in_channels} → {self.outputs}, {height} × {width})"

    def config(self) -> ConfigDict:
        return {
            "in_channels": self.in_channels,
            "out_channels": self.outputs,
            "kernel_size": list(self.windows.kernel),
            "posterior": self.posterior,
            "prior": self.prior,
            "stride": list(self.windows.stride),
            "padding": list(self.windows.padding),
            "boundary": self.boundary,
        }


class Conv2dFunction:
    """The function x ↦ x * W, W `[S, R, I, O]`, with zero padding.

    If all samples share the images, one convolution with S R O output channels computes them. Otherwise each
    sample has a convolution of its own (`benchmarks/weight_samples.py` compares other ways).
    """

    def __init__(self, weights: Tensor, windows: Windows, image_shape: Shape):
        self.weights, self.windows, self.image_shape = weights, windows, image_shape

    def __call__(self, x: Tensor) -> Tensor:
        """Map `[..., N, C, H, W]` to `[S, R, ..., N, O, H', W']`."""
        if tuple(x.shape[-3:]) != self.image_shape or x.dim() < 4:
            wanted = ", ".join(map(str, self.image_shape))
            raise ValueError(f"a convolution takes images [..., N, {wanted}], got {list(x.shape)}")
        check_points_kind(x, self.weights)
        kernels = self.weights.mT.unflatten(-1, (-1, *self.windows.kernel))  # [S, R, O, C, k, k]
        lead, own = kernels.shape[:-4], x.shape[:-4]
        shape = torch.broadcast_shapes(lead, own)
        if lead.numel() == 1:  # one kernel for all images
            outputs = self._convolve(x.flatten(0, -4), kernels.flatten(0, -4))
            return outputs.unflatten(0, (*shape, x.shape[-4]))
        if own.numel() == 1:  # the same images for all kernels
            outputs = self._convolve(x.flatten(0, -4), kernels.flatten(0, -4))
            return outputs.unflatten(1, (*shape, kernels.shape[-4])).movedim(0, len(shape))
        pairs = [part.expand(*shape, *part.shape[-4:]).flatten(0, -5).unbind() for part in (x, kernels)]
        return torch.stack(list(map(self._convolve, *pairs))).unflatten(0, shape)

    def _convolve(self, images: Tensor, kernels: Tensor) -> Tensor:
        return conv2d(images, kernels, stride=self.windows.stride, padding=self.windows.padding)
