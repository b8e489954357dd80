"""Kernels of Gaussian processes: a `Kernel` builds a `KernelModule`, whose call gives a `KernelFunction`.

Distances are computed in float64 from centred inputs, because |x|² + |z|² - 2 xᵀz cancels where a point is
close to an inducing point. Values have the dtype of the points.
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
