"""Layers: what draws functions."""

from gilib.layers.base import Layer, Shape
from gilib.layers.compose import Residual, Sequential, as_layer
from gilib.layers.linear import Linear
from gilib.layers.pointwise import Pointwise

__all__ = ["Layer", "Linear", "Pointwise", "Residual", "Sequential", "Shape", "as_layer"]
