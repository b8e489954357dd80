"""Oracles shared by the tests: textbook formulas, written with no regard to cost."""

import math
from collections import Counter

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gilib.convolution import Windows
from gilib.sites import ConvolutionWeights, DenseWeights
from tests.support import assert_mean as assert_mean_within  # noqa: F401


def normal(generator, *shape):
    """Standard normals in the default dtype."""
    return torch.randn(shape, generator=generator)


def positive(generator, *shape):
    """Positive numbers, spread around 1 and all different."""
    return (0.5 * torch.randn(shape, generator=generator)).exp()


def positive_definite(generator, *shape):
    """Well-conditioned covariance matrices `[..., n, n]` without any structure."""
    root = torch.randn(shape, generator=generator) / math.sqrt(shape[-1])
    return root @ root.mT + 0.5 * torch.eye(shape[-1])


def condition_jointly(prior, features, noise, targets):
    """Mean `[I]` and covariance `[I, I]` of w given v = Φ w + noise, by conditioning their joint Gaussian.

    Given are the covariance of w `[I, I]`, Φ `[M, I]`, the covariance of the noise `[M, M]`, and v `[M]`.
    """
    size = prior.shape[-1]
    map_to_both = torch.cat([torch.eye(size, dtype=prior.dtype), features])  # (w, v) = map · w + (0, noise)
    joint = map_to_both @ prior @ map_to_both.mT
    joint[size:, size:] += noise
    gain = joint[:size, size:] @ torch.linalg.inv(joint[size:, size:])
    return gain @ targets, joint[:size, :size] - gain @ joint[size:, :size]


def columns_log_prob(columns, mean, covariance):
    """Σ_o log N(w_o; mean_o, covariance_o) of `[..., I, O]`; the covariances are `[..., O or 1, I, I]`."""
    return MultivariateNormal(mean.mT, covariance).log_prob(columns.mT).sum(-1)


def plain_sample(precision, shift, noise):
    """A draw T⁻ᵀ(T⁻¹b + z), and its log Q from the density itself, by torch.linalg and autograd alone."""
    factor = torch.linalg.cholesky(0.5 * (precision + precision.mT))
    mean = torch.cholesky_solve(shift, factor)
    weights = mean + torch.linalg.solve_triangular(factor.mT, noise, upper=True)
    deviation = weights - mean
    quadratic = (deviation * (precision @ deviation)).sum((-2, -1))  # [..., G]
    size, columns = noise.shape[-2:]
    log_det = torch.logdet(precision)
    log_q = 0.5 * (columns * (log_det - size * math.log(2 * math.pi)) - quadratic)
    return weights, log_q.sum(-1)


def site(channels, pixels=1):
    """One with so many input channels and pixels in a kernel."""
    if pixels == 1:
        return DenseWeights(channels, 1)
    windows = Windows.of((pixels, 1), padding=0)
    return ConvolutionWeights(channels, 1, windows=windows, image_size=(pixels, 1))


def prior_module(spec, channels, pixels=1, generator=None, replicas=()):
    """A built float64 prior; with a generator its parameters are moved off their starting point."""
    module = spec.build(site(channels, pixels), torch.zeros(replicas, dtype=torch.float64))
    if generator is not None:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.3 * normal(generator, *parameter.shape)
    return module


def draw_prior(module, generator, samples=5, replicas=()):
    """The precision and the log-ratio of some draws of the hyper-parameters."""
    return module.draw(normal(generator, samples, *replicas, module.noise_size))


class Operations(TorchDispatchMode):
    """Counts what reaches the backend: how often each operation ran, and on which shapes Cholesky did.

    Attributes:
        count: of operations by name, overloads together.
        factorised: shapes of the matrices handed to a Cholesky factorisation.
        products: additions and multiplications of matrix products, in place or not, by dtype.
        largest: the number of entries of the largest tensor that an operation made.
    """

    def __init__(self):
        super().__init__()
        self.count: Counter[str] = Counter()
        self.factorised: list[tuple[int, ...]] = []
        self.products: Counter[torch.dtype] = Counter()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.count[name] += 1
        if name in ("linalg_cholesky_ex", "cholesky"):
            self.factorised.append(tuple(args[0].shape))
        if name.rstrip("_") in ("mm", "bmm", "addmm", "baddbmm", "matmul"):
            left, right = args[-2:]
            self.products[left.dtype] += 2 * left.numel() * right.shape[-1]
        if name == "_linear_pointwise":  # oneDNN's product, with the transpose of a matrix
            self.products[args[0].dtype] += 2 * args[0].numel() * args[1].shape[0]
        result = func(*args, **(kwargs or {}))
        sizes = [value.numel() for value in tree_leaves(result) if isinstance(value, Tensor)]
        self.largest = max(self.largest, *sizes, 0)
        return result

    def of(self, *names):
        """How often any of these operations ran."""
        return sum(self.count[name] for name in names)


def draw_weights(module, features, prior_precision, noise):
    """Weights and log-ratio of a posterior, from noise that is arranged as the weights are, `[..., I, O]`."""
    return module.draw(features, prior_precision, noise.flatten(-2))


def stacked(inputs, in_dims):
    """Three different versions of each argument, stacked along its dimension; and the list of the three."""
    batched, each = [], [[], [], []]
    for x, dim in zip(inputs, in_dims, strict=True):
        versions = [x if dim is None else (1.0 + k) * x for k in range(3)]
        batched.append(x if dim is None else torch.stack(versions, dim))
        for row, version in zip(each, versions, strict=True):
            row.append(version)
    return batched, each


def assert_equal_with_gradients(outputs, expected, inputs, tolerance=1e-12):
    """Outputs, and their gradients for random upstream ones, agree; returns the latter."""
    outputs, expected = tree_leaves(outputs), tree_leaves(expected)
    generator = torch.Generator().manual_seed(1)
    upstream = [normal(generator, *each.shape) for each in outputs]  # of matrices, not symmetric
    gradients = torch.autograd.grad(outputs, inputs, upstream, retain_graph=True)
    oracle = torch.autograd.grad(expected, inputs, upstream)
    for one, other in zip((*outputs, *gradients), (*expected, *oracle), strict=True):
        scale = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * scale)
    return gradients


def assert_vmap_equals_loop(function, inputs, in_dims, tolerance=1e-12):
    """What a function returns under `vmap` is what it returns for three versions of its arguments in turn."""
    batched, each = stacked(inputs, in_dims)
    found = tree_leaves(torch.func.vmap(function, in_dims)(*batched))
    for k, one in enumerate(each):
        for ours, wanted in zip(found, tree_leaves(function(*one)), strict=True):
            torch.testing.assert_close(ours[k], wanted, rtol=tolerance, atol=tolerance)
