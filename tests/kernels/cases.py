"""Kernels of every kind, and what they are by the textbook: differences, one pair at a time, no products."""

import math

import torch

import gilib
from gilib.kernels import (
    RBF,
    ArcCosine,
    Cosine,
    DotProduct,
    KernelOn,
    KernelProduct,
    KernelSum,
    Matern,
    Periodic,
    RationalQuadratic,
    spectral_mixture,
)
from tests.support import D

INPUTS = 3
SCALES = (0.7, 1.9, 1.2)
KERNELS = {
    "rbf": RBF(lengthscale=SCALES, variance=1.7),
    "rbf, one lengthscale": RBF(lengthscale=1.3, variance=0.4, ard=False),
    "matern 1/2": Matern(lengthscale=SCALES, variance=0.6, smoothness=0.5),
    "matern 3/2": Matern(lengthscale=SCALES, variance=1.4, smoothness=1.5),
    "matern 5/2": Matern(lengthscale=1.6, variance=2.1, smoothness=2.5),
    "rational quadratic": RationalQuadratic(lengthscale=SCALES, variance=1.3, alpha=0.7),
    "periodic": Periodic(lengthscale=SCALES, variance=1.1, period=(2.3, 1.4, 5.0)),
    "periodic, one lengthscale": Periodic(lengthscale=1.2, variance=0.7, ard=False, period=2.6),
    "cosine": Cosine(period=(2.3, 1.4, 5.0)),
    "arc-cosine 0": ArcCosine(order=0, weight_variance=SCALES, bias_variance=0.5, variance=1.8),
    "arc-cosine 1": ArcCosine(order=1, weight_variance=SCALES, bias_variance=0.5, variance=0.8),
    "linear": DotProduct(weight_variance=SCALES, bias_variance=0.3),
    "linear, no bias": DotProduct(weight_variance=1.4, bias_variance=0.0),
}
KERNELS["sum"] = KERNELS["rbf"] + KERNELS["linear"] + KERNELS["arc-cosine 1"]
KERNELS["product"] = KERNELS["matern 3/2"] * KERNELS["linear"]
KERNELS["sum of a product"] = KERNELS["rbf"] * KERNELS["arc-cosine 0"] + KERNELS["matern 1/2"]
KERNELS["on columns"] = KERNELS["product"] + (Matern(0.8) * DotProduct(1.3)).on(2) + RBF((0.5, 0.9)).on(2, 0)
KERNELS["spectral mixture"] = spectral_mixture([(2.0, 3.0, 1.5), 0.9], [SCALES, 2.5], [1.2, 0.4])
ROUGH = ("matern 1/2", "arc-cosine 0", "sum of a product")  # no derivative where two points meet


def module(kernel, inputs=INPUTS, replicas=(), dtype=D):
    return kernel.build(inputs, gilib.posteriors.BuildContext(replicas=replicas, dtype=dtype))


def function(kernel, inputs=INPUTS):
    """The kernel with the hyper-parameters of its specification."""
    return module(kernel, inputs)()


def textbook(kernel, a, b):
    """The kernel `[..., M, N]` of points `[..., M, D]` and `[..., N, D]` by its definition."""
    if isinstance(kernel, KernelSum):
        return sum(textbook(part, a, b) for part in kernel.parts)
    if isinstance(kernel, KernelProduct):
        return torch.stack([textbook(part, a, b) for part in kernel.parts]).prod(0)
    if isinstance(kernel, KernelOn):
        return textbook(kernel.kernel, a[..., kernel.columns], b[..., kernel.columns])
    a, b = a[..., :, None, :], b[..., None, :, :]
    if isinstance(kernel, Cosine):
        return torch.cos(2 * math.pi * (a - b) / torch.tensor(kernel.period, dtype=a.dtype)).prod(-1)
    if isinstance(kernel, Periodic):
        sines = torch.sin(math.pi * (a - b) / torch.tensor(kernel.period, dtype=a.dtype))
        scaled = sines / torch.tensor(kernel.lengthscale, dtype=a.dtype)
        return kernel.variance * torch.exp(-2 * scaled.square().sum(-1))
    if isinstance(kernel, RBF):
        squares = ((a - b) / torch.tensor(kernel.lengthscale, dtype=a.dtype)).square().sum(-1)
        return kernel.variance * _of_distance(kernel, squares)
    weights = torch.tensor(kernel.weight_variance, dtype=a.dtype)
    products = (weights * a * b).sum(-1) + kernel.bias_variance
    if isinstance(kernel, DotProduct):
        return products
    norms = [((weights * x * x).sum(-1) + kernel.bias_variance).sqrt() for x in (a, b)]
    cosine = (products / (norms[0] * norms[1])).clamp(-1.0, 1.0)
    angle = cosine.acos()
    if kernel.order == 0:
        return kernel.variance * (1 - angle / math.pi)
    value = norms[0] * norms[1] * (angle.sin() + (math.pi - angle) * cosine) / math.pi
    return kernel.variance * value


def _of_distance(kernel, squares):
    """Of (r/ℓ)², at variance 1."""
    if isinstance(kernel, RationalQuadratic):
        return (1 + squares / (2 * kernel.alpha)) ** -kernel.alpha
    if not isinstance(kernel, Matern):
        return torch.exp(-0.5 * squares)
    r = squares.sqrt()
    if kernel.smoothness == 0.5:
        return torch.exp(-r)
    if kernel.smoothness == 1.5:
        return (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r)
    return (1 + math.sqrt(5) * r + 5 * squares / 3) * torch.exp(-math.sqrt(5) * r)
