"""Kernels of Gaussian processes, with their hyper-parameters.

A kernel is a frozen specification; `kernel.build(D, context)` makes a module with positive hyper-parameters,
one set for every replica, and `module()` is the kernel as a function, with the values of that moment.

Distances are computed in float64, from centred inputs, whatever the dtype of the points: in float32
|x|² + |z|² - 2 xᵀz cancels where a point is close to an inducing point, and the root of a variance then makes
gradients wrong by a factor of 1000 (at lengthscale 0.01). Values have the dtype of the points.
"""

from gilib.kernels.functions import KernelFunction
from gilib.kernels.modules import KernelModule
from gilib.kernels.specifications import (
    RBF,
    ArcCosine,
    Cosine,
    DotProduct,
    Kernel,
    KernelOn,
    KernelProduct,
    KernelSum,
    Matern,
    Periodic,
    RationalQuadratic,
    White,
    spectral_mixture,
)

__all__ = [
    "RBF",
    "ArcCosine",
    "Cosine",
    "DotProduct",
    "Kernel",
    "KernelFunction",
    "KernelModule",
    "KernelOn",
    "KernelProduct",
    "KernelSum",
    "Matern",
    "Periodic",
    "RationalQuadratic",
    "White",
    "spectral_mixture",
]
