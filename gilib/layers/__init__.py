"""Layers: distributions over functions, from which a network draws."""

from gilib.layers.base import Layer
from gilib.layers.batchnorm import InducingBatchNorm
from gilib.layers.branches import Concat, Sum
from gilib.layers.compose import Residual, Sequential, as_layer
from gilib.layers.conv import Conv2d
from gilib.layers.fixed import FixedLinear
from gilib.layers.gp import GP
from gilib.layers.linear import Linear
from gilib.layers.pointwise import Pointwise
from gilib.layers.pretrained import Pretrained

__all__ = [
    "GP",
    "Concat",
    "Conv2d",
    "FixedLinear",
    "InducingBatchNorm",
    "Layer",
    "Linear",
    "Pointwise",
    "Pretrained",
    "Residual",
    "Sequential",
    "Sum",
    "as_layer",
]
