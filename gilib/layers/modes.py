"""The ways to draw a layer that take noise at every point: estimates and joint draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from gilib.draws import Drawn
from gilib.layers.base import Layer
from gilib.randomness import Noise, NoiseSize


@dataclass(frozen=True)
class SamplingMode:
    """A way to draw that takes noise at every point.

    Attributes:
        size: how much noise a layer's takes.
        make: it, from a layer and noise, as a function of inducing points.
    """

    size: Callable[[Layer], NoiseSize]
    make: Callable[[Layer, Noise], Callable[[Tensor | None], Drawn]]


ESTIMATE = SamplingMode(
    lambda layer: layer.estimate_size, lambda layer, noise: partial(layer.estimate_from_noise, noise=noise)
)
JOINT = SamplingMode(
    lambda layer: layer.joint_size, lambda layer, noise: partial(layer.joint_from_noise, noise=noise)
)
