"""Operations whose gradient we write against the same in plain PyTorch, forward and back, and back alone.

Shapes are those of the book's models. Values and gradients are compared before anything is timed. Plain is
what autograd differentiates: the same formulas in products of the same libraries. Times are interleaved,
medians, in one process: ratios are what counts.

    python benchmarks/operations.py [--threads 1] [--repeats 21] [--only draw gram] [--record]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from measures import spent
from recording import Row, parser, running
from torch import Tensor, nn

from gilib.convolution import Windows, window_moments
from gilib.linalg import cholesky_and_inverse
from gilib.linalg.exponential import Exponents
from gilib.linalg.products import product
from gilib.projection import Columns, project_columns, projected_at_once
from gilib.regression.primal import sample_from_precision
from gilib.statistics import weighted_gram

Way = Callable[..., Sequence[Tensor]]


class Case(NamedTuple):
    """One operation at one shape.

    Attributes:
        name: of the operation, and what it is called with.
        shape: what tells cases apart.
        leaves: what is differentiated by.
        ours: values from the leaves, by our operation.
        plain: the same by autograd.
    """

    name: str
    shape: dict[str, int]
    leaves: list[Tensor]
    ours: Way
    plain: Way


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normals."""
    return torch.randn(shape, dtype=dtype)


def precisions(count: int, size: int) -> Tensor:
    """Positive definite matrices in float64, moderately conditioned."""
    root = normal(count, size, 2 * size, dtype=torch.float64)
    return root @ root.mT / (2 * size) + 0.1 * torch.eye(size, dtype=torch.float64)


def projection(
    name: str, outputs: int, free: bool, inputs: int = 8, points: int = 927, size: int = 100
) -> Case:
    """A layer of processes at data points, ten samples; free: with the covariance of a free Gaussian."""
    left, right = (0.3 * normal(10, inputs + 2, n, dtype=torch.float64) for n in (points, size))
    forms = outputs if free else 0
    inverse = torch.linalg.cholesky(precisions(10, size)).float()
    values = normal(10, size, forms * size + outputs)
    if free:
        squares = values[..., : forms * size].unflatten(-1, (forms, size)).movedim(-2, -3)
        values = torch.cat(
            [(squares + squares.mT).movedim(-3, -2).flatten(-2), values[..., forms * size :]], -1
        )

    def made(found: Any) -> list[Tensor]:
        return [part for part in found[:3] if part is not None]

    def ours(left: Tensor, right: Tensor, inverse: Tensor, values: Tensor) -> list[Tensor]:
        kernel = Exponents(left, right, torch.float32)
        return made(project_columns(kernel, inverse, Columns(values, forms, outputs)))

    def plain(left: Tensor, right: Tensor, inverse: Tensor, values: Tensor) -> list[Tensor]:
        kernel = product(left.mT, right).float().exp()
        return made(projected_at_once(kernel, inverse, Columns(values, forms, outputs), ()))

    return Case(
        name,
        {"points": points, "inducing": size, "outputs": outputs},
        [left, right, inverse, values],
        ours,
        plain,
    )


def plain_factors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A Cholesky factor and its inverse."""
    factor = torch.linalg.cholesky(matrix)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    return factor, torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)


def factors(count: int, size: int) -> Case:
    """Cholesky factors of kernel matrices with their inverses."""
    shape, leaves = {"matrices": count, "size": size}, [precisions(count, size)]
    return Case("factors", shape, leaves, cholesky_and_inverse, plain_factors)


def draw(count: int, size: int, groups: int, columns: int) -> Case:
    """Weights from the precision of a regression."""

    def ours(matrix: Tensor, shift: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        return sample_from_precision(0.5 * (matrix + matrix.mT), shift, noise)

    def plain(matrix: Tensor, shift: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        factor = torch.linalg.cholesky(0.5 * (matrix + matrix.mT))
        white = torch.linalg.solve_triangular(factor, shift, upper=False) + noise
        weights = torch.linalg.solve_triangular(factor.mT, white, upper=True)
        scale = columns * factor.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        constant = 0.5 * noise[0].numel() * math.log(2 * math.pi)
        return weights, scale - 0.5 * noise.square().sum((-3, -2, -1)) - constant

    matrices = precisions(count * groups, size).unflatten(0, (count, groups))
    leaves = [matrices, *normal(2, count, groups, size, columns, dtype=torch.float64)]
    return Case(
        "draw",
        {"samples": count, "features": size, "precisions": groups, "outputs": groups * columns},
        leaves,
        ours,
        plain,
    )


def gram(samples: int, points: int, size: int, outputs: int) -> Case:
    """Gram matrices with a weight for every output."""

    def plain(features: Tensor, weights: Tensor) -> list[Tensor]:
        return [features[:, None].mT @ (weights[..., None] * features[:, None])]

    leaves = [normal(samples, points, size), normal(outputs, points).exp()]
    shape = {"samples": samples, "points": points, "features": size, "outputs": outputs}
    return Case("gram", shape, leaves, lambda *parts: [weighted_gram(*parts)], plain)


def moments(images: int, channels: int, size: int) -> Case:
    """Second moments of the windows of images, by whichever route is taken, against patches."""
    windows = Windows.of(3, boundary="zero")

    def plain(x: Tensor, y: Tensor) -> list[Tensor]:
        rows = nn.functional.unfold(x, 3, padding=1).movedim(1, 0).flatten(1)  # [C K, B windows]
        return [rows @ rows.mT, rows @ y.transpose(0, 1).flatten(1).mT]

    leaves = [normal(images, channels, size, size) for _ in "xy"]
    shape = {"images": images, "channels": channels, "size": size}
    return Case("moments", shape, leaves, lambda *parts: window_moments(*parts, windows), plain)


CASES: dict[str, list[Callable[[], Case]]] = {
    "projection": [
        partial(projection, "projection, free Gaussians", 8, True),
        partial(projection, "projection, free Gaussian", 1, True),
        partial(projection, "projection, drawn", 8, False),
    ],
    "factors": [partial(factors, 10, 100), partial(factors, 10, 200), partial(factors, 50, 100)],
    "draw": [partial(draw, 10, 51, 50, 1), partial(draw, 10, 51, 1, 50), partial(draw, 10, 100, 1, 8)],
    "gram": [partial(gram, 10, 40, 51, 50), partial(gram, 10, 100, 51, 50)],
    "moments": [partial(moments, 100, 16, 32), partial(moments, 100, 64, 8)],
}


def backward(way: Way, leaves: list[Tensor]) -> Callable[[], list[Tensor]]:
    """A step back through a graph that stays; upstream gradients are random, and the same for every way."""
    values = list(way(*leaves))
    source = torch.Generator().manual_seed(1)
    upstream = [torch.randn(value.shape, generator=source, dtype=value.dtype) for value in values]
    return lambda: [*torch.autograd.grad(values, leaves, upstream, retain_graph=True)]


def checked(make: Callable[[], Case]) -> Case:
    """A case whose values and gradients agree to rounding, in the norm."""
    torch.manual_seed(0)
    case = make()
    for leaf in case.leaves:
        leaf.requires_grad_()
    results = [[*way(*case.leaves), *backward(way, case.leaves)()] for way in (case.ours, case.plain)]
    for ours, plain in zip(*results, strict=True):
        error = float((ours - plain).detach().norm() / plain.detach().norm())
        exact = all(leaf.dtype == torch.float64 for leaf in case.leaves)
        assert error < (1e-10 if exact else 1e-4), f"{case.name}: relative difference {error:.1e}"
    return case


def row(case: Case, repeats: int) -> Row:
    """Time one case."""
    ways = {"ours": case.ours, "plain": case.plain}
    alone = {name: backward(way, case.leaves) for name, way in ways.items()}
    whole = {name: partial(whole_step, way, case.leaves) for name, way in ways.items()}
    found, back = spent(whole, repeats), spent(alone, repeats)
    return Row(
        {"operation": case.name, **case.shape},
        "plain",
        {name: each.ms for name, each in found.items()},
        faults={name: each.faults for name, each in found.items()},
        more={"backward_ms": {name: each.ms for name, each in back.items()}},
    )


def whole_step(way: Way, leaves: list[Tensor]) -> None:
    """Forward and back."""
    backward(way, leaves)()


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, record."""
    known = parser(__doc__, 21)
    known.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    options = known.parse_args(arguments)
    with running("operations", options) as run:
        makes = [make for name in options.only for make in CASES[name]]
        rows = [row(checked(make), options.repeats) for make in makes]
        run.finish(rows)


if __name__ == "__main__":
    main()
