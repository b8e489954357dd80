"""Operations of a training step, forward and backward, that no arrangement of the computation avoids: GFLOP.

A product of [A, B] with [B, C] costs 2 A B C, and the same again for each gradient that is needed. S draws,
N points, M inducing points, layers from I - 1 inputs (and a bias) to O outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

FACTOR = 14 / 3  # times I³: an inverse Cholesky factor, 2/3, and the gradient of its matrix, two products, 4


def layers(widths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Position, I and O of every layer."""
    for k, (inputs, outputs) in enumerate(pairwise(widths)):
        yield k, inputs + 1, outputs


def evaluation(widths: Sequence[int], points: int, samples: int) -> float:
    """Points through S networks: three products a layer, two in the first, whose inputs need no gradient.

    Biases are added, not multiplied.

    >>> evaluation((1, 1), 10**9, 1)
    4.0
    """
    each = ((4 + 2 * (k > 0)) * (i - 1) * o for k, i, o in layers(widths))
    return samples * points * sum(each) / 1e9


def inducing(widths: Sequence[int], points: int, inducing: int, samples: int, per_output: bool) -> float:
    """Global inducing points in linear layers.

    For each Gram matrix the triangle and its gradient, 3 M I²; its factor; ΦᵀΛV, 6 M I O; six products of
    [I, I] with [I, O]; inducing points through all layers but the last; the points. The first layer has one
    Gram matrix, and one factor, for all draws.
    """
    total, last = 0.0, len(widths) - 2
    for k, i, o in layers(widths):
        own, grams = (samples if k else 1), (o if per_output else 1)
        total += own * grams * (3 * inducing * i**2 + FACTOR * i**3) + own * 6 * inducing * i * o
        total += samples * (12 * i**2 * o + (6 * inducing * i * o if k < last else 0))
    return total / 1e9 + evaluation(widths, points, samples)


def stochastic(outputs: Sequence[int], points: int, inducing: int, samples: int) -> float:
    """A doubly stochastic deep GP: at points R⁻¹k, with two gradients, and S_o a, with one for each output.

    The kernel matrix has a factor, its inverse and their gradient; S_o = L Lᵀ a triangle and its gradient.
    """
    total = 0.0
    for k, o in enumerate(outputs):
        rows = points * (samples if k else 1)
        total += 2 * rows * inducing**2 * (3 + 2 * o) + (FACTOR + 3 * o) * inducing**3
    return total / 1e9


def processes(outputs: Sequence[int], points: int, inducing: int, samples: int) -> float:
    """Global inducing points in a deep GP: a kernel matrix and a regression on its factor for every draw.

    At points R⁻¹k with two gradients; two factors; a Gram matrix of M features at M points. In the first
    layer the draws share them.
    """
    total = 0.0
    for k, _ in enumerate(outputs):
        own = samples if k else 1
        total += own * (6 * points * inducing**2 + (2 * FACTOR + 3) * inducing**3)
    return total / 1e9
