"""Sites: what a posterior is over. Which posterior it is, the user says; over what, the layer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from gilib.convolution import Windows
from gilib.convolution.patches import patches
from gilib.statistics import (
    Statistics,
    convolutional_statistics,
    full_statistics,
    per_output_statistics,
    shared_statistics,
)

__all__ = ["ConvolutionWeights", "DenseWeights", "InducingOutputs", "Observations", "Site"]

Shape = tuple[int, ...]
PRECISIONS = ("shared", "per_output", "full")


class Observations(NamedTuple):
    """Pseudo-outputs with their precisions, in one arithmetic.

    Attributes:
        outputs: V, `[R, M, O]`; at a convolution images, `[R, M, O, H', W']`.
        kind: of the precision Λ: "shared", "per_output" or "full".
        log_precision: log λ, `[R, M]`; `[R, O, M]` if per output.
        root: L of Λ = L Lᵀ, `[R, M, M]`, if full; else None.
    """

    outputs: Tensor
    kind: str
    log_precision: Tensor
    root: Tensor | None = None

    def statistics(self, features: Tensor) -> Statistics:
        """Those of the regression from `features` `[S, R, M, I]`."""
        if self.root is not None:
            return full_statistics(features, self.outputs, self.root)
        supply = per_output_statistics if self.kind == "per_output" else shared_statistics
        return supply(features, self.outputs, self.log_precision.exp())

    def whitened(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features, targets and √λ `[..., M, G]` of a regression with a diagonal precision."""
        root = (0.5 * self.log_precision).exp()
        if self.root is not None:
            whiten = self.root.mT
            return whiten @ features, whiten @ self.outputs, torch.ones_like(root)[..., None]
        return features, self.outputs, root.mT if self.kind == "per_output" else root[..., None]


@dataclass(frozen=True)
class Site(ABC):
    """O columns of I unknowns with priors N(0, P⁻¹), and how inducing features become a regression onto them.

    Attributes:
        channels: input features, a bias included, or input channels.
        outputs: O.
        bias: whether the last channel is the constant 1.
        features_grow: whether float32 may fail to factorise, as under `StandardPrior`, where features grow
            from layer to layer; `factor_dtype="auto"` then takes float64.
        supplies_features: whether the layer has features for every posterior, so that none learns its own.
    """

    supplies_features: ClassVar[bool] = False
    channels: int
    outputs: int
    bias: bool = False
    features_grow: bool = False

    @property
    @abstractmethod
    def kernel_pixels(self) -> int:
        """How many of the I unknowns each channel has, K."""

    @property
    def fan_in(self) -> int:
        """I = channels · K."""
        return self.channels * self.kernel_pixels

    @property
    def scale(self) -> float:
        """√I, the factor that brings weights to scale one; 1 for unknowns that have it already."""
        return math.sqrt(self.fan_in)

    @property
    @abstractmethod
    def input_axes(self) -> int:
        """Axes of a point that enters the layer, the channels first."""

    @property
    @abstractmethod
    def windows_per_point(self) -> int:
        """Rows of the regression that one inducing point gives."""

    @abstractmethod
    def pseudo_outputs(self, points: int) -> Shape:
        """The shape of the pseudo-outputs of M inducing points."""

    def check_precision(self, kind: str) -> None:  # noqa: B027 (optional)
        """Raise ValueError unless pseudo-outputs here can have precisions of this kind; any, by default."""

    @abstractmethod
    def as_dense(self) -> DenseWeights:
        """The same unknowns, with rows `[..., I]` for features."""

    @abstractmethod
    def statistics(self, features: Tensor, observed: Observations) -> Statistics:
        """Those of the regression from inducing features onto pseudo-outputs."""

    @abstractmethod
    def rows(self, features: Tensor, observed: Observations) -> tuple[Tensor, Observations]:
        """The same regression with explicit rows, `[S, R, M · windows, I]`."""

    @abstractmethod
    def check_features(self, features: Tensor, points: int) -> None:
        """Raise unless these are inducing features of the number and shape that the site was built for."""


@dataclass(frozen=True)
class DenseWeights(Site):
    """The weights of a dense layer, or whatever else meets its features as a matrix product.

    >>> DenseWeights(channels=4, outputs=2, bias=True).fan_in
    4
    """

    kernel_pixels = input_axes = windows_per_point = 1

    def pseudo_outputs(self, points: int) -> Shape:
        return points, self.outputs

    def as_dense(self) -> DenseWeights:
        return self

    def statistics(self, features: Tensor, observed: Observations) -> Statistics:
        return observed.statistics(features)

    def rows(self, features: Tensor, observed: Observations) -> tuple[Tensor, Observations]:
        return features, observed

    def check_features(self, features: Tensor, points: int) -> None:
        if tuple(features.shape[-2:]) != (points, self.fan_in):
            raise ValueError(
                f"inducing features must have shape [..., {points}, {self.fan_in}] (inducing points, inputs, "
                f"a bias included), for which the layer was built, got {list(features.shape)}"
            )


@dataclass(frozen=True)
class InducingOutputs(DenseWeights):
    """What a Gaussian process is at M inducing inputs, whitened: u = R w, K = R Rᵀ, w ~ N(0, Id).

    The features of w are R, `[..., M, M]`, which the layer supplies (M channels).
    """

    supplies_features: ClassVar[bool] = True

    scale = 1.0


@dataclass(frozen=True)
class ConvolutionWeights(Site):
    """The kernels of a convolution; inducing features are images.

    Attributes:
        windows: kernel, stride, padding and boundary of the statistics.
        image_size: (H, W).
    """

    windows: Windows = field(kw_only=True)
    image_size: tuple[int, int] = field(kw_only=True)
    input_axes = 3

    @property
    def kernel_pixels(self) -> int:
        return self.windows.pixels

    @property
    def windows_per_point(self) -> int:
        return math.prod(self.windows.output_size(self.image_size))

    def pseudo_outputs(self, points: int) -> Shape:
        return points, self.outputs, *self.windows.output_size(self.image_size)

    def check_precision(self, kind: str) -> None:
        if kind != "shared":
            raise ValueError(
                f"a convolution has one precision per inducing image, got precision={kind!r}: "
                "use GlobalInducing(precision='shared')"
            )

    def as_dense(self) -> DenseWeights:
        return DenseWeights(self.fan_in, self.outputs, False, self.features_grow)

    def statistics(self, features: Tensor, observed: Observations) -> Statistics:
        """From images `[S, R, M, C, H, W]`, without patches (Ober & Aitchison, 2021, App. C)."""
        precision = observed.log_precision.exp()
        return convolutional_statistics(features, observed.outputs, precision, self.windows)

    def rows(self, features: Tensor, observed: Observations) -> tuple[Tensor, Observations]:
        lead = features.shape[:-3]
        windows = patches(features.flatten(0, -4), self.windows)  # [C, k, k, S R M, H', W']
        rows = windows.permute(3, 4, 5, 0, 1, 2).flatten(3).flatten(1, 2)  # [S R M, H' W', I]
        targets = observed.outputs.flatten(-2).mT.flatten(-3, -2)  # [R, M H' W', O]
        log_precision = observed.log_precision.repeat_interleave(rows.shape[1], -1)
        return rows.unflatten(0, lead).flatten(-3, -2), Observations(targets, "shared", log_precision)

    def check_features(self, features: Tensor, points: int) -> None:
        wanted = (points, self.channels, *self.image_size)
        if tuple(features.shape[-4:]) != wanted:
            raise ValueError(
                f"inducing images must have shape [..., {', '.join(map(str, wanted))}], for which the layer "
                f"was built, got {list(features.shape)}"
            )
