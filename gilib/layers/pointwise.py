"""Wraps torch modules without parameters, such as activations and pooling, as layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from gilib.config import ConfigDict, module_config, module_from_config
from gilib.draws import AnyDrawn, FixedFunction
from gilib.layers.base import Layer
from gilib.posteriors import BuildContext
from gilib.randomness import Noise
from gilib.sites import Shape

COUPLES_POINTS = (nn.modules.batchnorm._BatchNorm,)
ELEMENTWISE = (  # modules of torch that accept any number of axes
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Softsign, nn.Tanhshrink),
    *(nn.LogSigmoid, nn.Hardshrink, nn.Softshrink, nn.Threshold, nn.Identity),
)
OWN_NOISE = (nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)


def points_shape(x: Tensor, point_axes: int, module: nn.Module) -> torch.Size:
    """Return the shape `[..., N]` of the axes in front of a point; raise an error if there are none."""
    if x.dim() <= point_axes:
        raise ValueError(
            f"{type(module).__name__} takes points [..., N, ...] with {point_axes} axes each, "
            f"got one of shape {list(x.shape)}: give x[None]"
        )
    return x.shape[: x.dim() - point_axes]


def trial_points(shape: Shape, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
    """Return two points `[2, *shape]`, at which modules are tried."""
    values = torch.linspace(-1.0, 1.0, 2 * math.prod(shape), dtype=dtype, device=device)
    return values.reshape(2, *shape)


@dataclass(frozen=True)
class PointwiseFunction(FixedFunction):
    """The function that applies a module to points `[S, R, ..., N, *point]`, with the leading axes merged."""

    module: nn.Module  # a module that takes `[B, *point]`
    point_axes: int  # number of axes of a point

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the module to `[..., *point]`."""
        lead = points_shape(x, self.point_axes, self.module)
        if type(self.module) in ELEMENTWISE:
            return cast(Tensor, self.module(x))
        output: Tensor = self.module(x.reshape(-1, *x.shape[len(lead) :]))
        return output.reshape(*lead, *output.shape[1:])


class Pointwise(Layer):
    """A layer that applies a `torch.nn` module without parameters, such as ReLU, pooling or flatten.

    The leading axes `[S, R, ..., N]` are merged for the module and restored afterwards.

    Args:
        module: a module that treats each point by itself and uses no noise.

    Raises:
        ValueError: if the module has parameters, couples the points of a batch, draws noise, or changes its
            inputs in place.

    >>> layer = Pointwise(nn.Flatten())
    >>> layer.build((2, 4, 4), BuildContext())
    (32,)
    >>> layer.draw()(torch.zeros(5, 3, 2, 4, 4)).shape
    torch.Size([5, 3, 32])
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        _refuse_unsuitable(module)
        self.module = module
        self._point_dim: int | None = None

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Find the output shape by applying the module to two points, which it must not couple."""
        self._point_dim, self.replicas = len(shape), context.replicas
        pair = trial_points(shape, context.dtype, context.device)
        try:
            output, both = self.module(pair[:1]), self.module(pair)
        except (RuntimeError, ValueError, IndexError) as error:
            raise ValueError(
                f"{self.describe()} cannot take points of shape {list(shape)}: {error}"
            ) from error
        if both.shape != (2, *output.shape[1:]) or not torch.allclose(both[:1], output):
            raise ValueError(
                f"{self.describe()} couples the points of a batch: {self.module} must act on one point"
            )
        return tuple(output.shape[1:])

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        assert self._point_dim is not None
        return mode(PointwiseFunction(self.module, self._point_dim), noise.zeros)

    def describe(self) -> str:
        return type(self.module).__name__

    def config(self) -> ConfigDict:
        return {"module": module_config(self.module)}

    @classmethod
    def from_config(cls, config: ConfigDict) -> Pointwise:
        return cls(module_from_config(config["module"]))


def _refuse_unsuitable(module: nn.Module) -> None:
    if not isinstance(module, nn.Module):
        raise TypeError(f"a layer must be a gilib layer or a torch.nn.Module, got {type(module).__name__}")
    for part in module.modules():
        name = type(part).__name__
        if isinstance(part, COUPLES_POINTS):
            raise ValueError(
                f"{name} couples the points of a batch, so that no function would be drawn; "
                "normalise the data, or choose a prior that keeps activations in scale (gilib.NealPrior)"
            )
        if isinstance(part, OWN_NOISE):
            raise ValueError(f"{name} draws noise of its own, outside prior and posterior: leave it out")
        if getattr(part, "inplace", False):
            raise ValueError(
                f"{name}(inplace=True) would overwrite inputs and inducing points: leave inplace out"
            )
    if any(True for _ in module.parameters()):
        raise ValueError(
            f"{type(module).__name__} has parameters without a prior, so that ELBOs would not be comparable: "
            "use gilib.Linear; of a trained module gilib.Pretrained(module) keeps the parameters as they "
            "are, and gilib.bayesian(module) gives them a posterior"
        )
