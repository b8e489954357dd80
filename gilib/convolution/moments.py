"""Second moments of all windows of a set of images: the statistics of a convolution, without its patches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from gilib.convolution.patches import patches
from gilib.convolution.routes import ROUTES, Route, fastest_route
from gilib.convolution.windows import Pair, Windows
from gilib.linalg import readable
from gilib.linalg.operation import Operation, first_order, is_transformed
from gilib.validation import check_choice, check_is_tensor


def autocorrelation(
    x: Tensor,
    y: Tensor,
    kernel_size: int | Pair,
    precision: Tensor | None = None,
    *,
    boundary: str = "circular",
    stride: int | Pair = 1,
    padding: int | Pair | None = None,
    route: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return X'ᵀΛX' and X'ᵀΛY for the patches X' of images, without patches (Ober & Aitchison, 2021, App. C).

        (X'ᵀΛX')[cδ, c'δ'] = Σ_b λ_b Σ_u X_bc(s u + δ - p) X_bc'(s u + δ' - p)           (Eq. 42)
        (X'ᵀΛY)[cδ, o]     = Σ_b λ_b Σ_u X_bc(s u + δ - p) Y_bo(u)                       (Eq. 40)

    The result is differentiable once; transforms of `torch.func`, for which all patches are built, may
    differentiate any number of times. Leading axes broadcast.

    Args:
        x: images, `[..., B, C, H, W]`.
        y: outputs, one for every window, `[..., B, O, H', W']`.
        kernel_size: k, an integer or (height, width).
        precision: λ, one weight per image, at least 0, `[..., B]`; 1 if None.
        boundary: "circular", as in the paper; or "zero", like the layers of a network.
        stride: s, an integer or (height, width).
        padding: p, an integer or (height, width); None: (k - 1) / 2.
        route: "spectral", "convolution" or "patches"; None: the one that should be fastest.

    Returns:
        `[..., C K, C K]` and `[..., C K, O]`, where the K pixels of the kernel run fastest.

    Raises:
        TypeError, ValueError: if shapes or types do not fit, or an even kernel has no padding.

    >>> xtx, xty = autocorrelation(torch.ones(5, 2, 8, 8), torch.ones(5, 3, 8, 8), 3)
    >>> xtx.shape, xty.shape, xtx[0, 0].item()
    (torch.Size([18, 18]), torch.Size([18, 3]), 320.0)
    """
    windows = Windows.of(kernel_size, stride=stride, padding=padding, boundary=boundary)
    return window_moments(x, y, windows, precision, route)


def window_moments(
    x: Tensor, y: Tensor, windows: Windows, precision: Tensor | None = None, route: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return the moments of `autocorrelation` for given `Windows`."""
    check_images(x, y, windows, precision)
    name = fastest_route(x, y, windows) if route is None else route
    check_choice(name, ROUTES, "route")
    if is_transformed(x, y, *(() if precision is None else (precision,))):
        return _plainly(x, y, precision, windows)
    gram, cross = _Moments.apply(x, y, precision, windows, ROUTES[name])
    return gram, cross


def _plainly(x: Tensor, y: Tensor, precision: Tensor | None, windows: Windows) -> tuple[Tensor, Tensor]:
    """Compute the moments from all patches, which transforms of `torch.func` can differentiate twice."""
    cut = patches(x.flatten(0, -4), windows).movedim(3, 0).flatten(1, 3).flatten(2)  # [... B, C K, windows]
    rows = cut.unflatten(0, x.shape[:-3]).movedim(-3, -2)  # [..., C K, B, windows]
    weighted = rows if precision is None else precision[..., None, :, None] * rows
    targets = y.flatten(-2).movedim(-3, -2)  # [..., O, B, windows]
    return weighted.flatten(-2) @ rows.flatten(-2).mT, weighted.flatten(-2) @ targets.flatten(-2).mT


class _Moments(Operation):
    @staticmethod
    def forward(
        x: Tensor, y: Tensor, precision: Tensor | None, windows: Windows, route: Route
    ) -> tuple[Tensor, Tensor]:
        lead = _lead(x, y, precision)
        if not lead:
            return route.moments(x, y, None if precision is None else precision.sqrt(), windows)
        size, outputs = x.shape[-3] * windows.pixels, y.shape[-3]
        gram, cross = x.new_empty(*lead, size, size), x.new_empty(*lead, size, outputs)
        for index, sets in _each(lead, x, y, precision):
            gram[index], cross[index] = route.moments(*sets, windows)
        return gram, cross

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, y, precision, ctx.windows, ctx.route = inputs
        ctx.save_for_backward(x, y, precision)

    @staticmethod
    @first_order
    def backward(ctx: Any, d_gram: Tensor, d_cross: Tensor) -> tuple[Tensor | None, ...]:
        x, y, precision = ctx.saved_tensors
        lead = _lead(x, y, precision)
        sums = [_Sum(part, lead) for part in (x, y)]
        wanted = precision is not None and ctx.needs_input_grad[2]
        d_precision = precision.new_zeros(precision.shape) if wanted else None
        for index, sets in _each(lead, x, y, precision):
            images, targets, root = sets
            own = [each.part(index) for each in sums]
            ctx.route.write_gradients(*sets, ctx.windows, d_gram[index], d_cross[index], *own)
            for each, part in zip(sums, own, strict=True):
                each.add(index, part)
            # Moments depend on √λ X and √λ Y alone, so 2λ ∂λ = X·∂X + Y·∂Y for every image. For λ = 0
            # both sides vanish; tiny avoids 0 / 0.
            if d_precision is not None and root is not None:
                weight = root.square().clamp_min(torch.finfo(root.dtype).tiny)
                total = _dot(images, own[0]) + _dot(targets, own[1])
                d_precision.expand(*lead, -1)[index].add_(0.5 * total / weight)
        return sums[0].total, sums[1].total, d_precision, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, y: Tensor, precision: Tensor | None, *rest: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        parts, owns = (x, y, precision), (4, 4, 1)
        ranks = [
            part.dim() - (dim is not None) - own
            for part, dim, own in zip(parts, in_dims, owns, strict=False)
            if part is not None
        ]
        moved = [
            None if part is None else _batch_first(part, dim, own + max(ranks))
            for part, dim, own in zip(parts, in_dims, owns, strict=False)
        ]
        return _Moments.apply(*moved, *rest), (0, 0)


def _batch_first(part: Tensor, dim: int | None, rank: int) -> Tensor:
    """Move the batch axis to the front and insert axes of size 1 behind it, up to `rank` others."""
    part = part[None] if dim is None else part.movedim(dim, 0)
    return part.reshape(len(part), *(1,) * (rank + 1 - part.dim()), *part.shape[1:])


def _lead(x: Tensor, y: Tensor, precision: Tensor | None) -> torch.Size:
    shapes = [x.shape[:-4], y.shape[:-4], *([] if precision is None else [precision.shape[:-1]])]
    try:
        return torch.broadcast_shapes(*shapes)
    except RuntimeError:
        given = " and ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"leading axes must broadcast, got {given}") from None


def _each(
    lead: torch.Size, x: Tensor, y: Tensor, precision: Tensor | None
) -> Iterator[tuple[tuple[int, ...], tuple[Tensor, Tensor, Tensor | None]]]:
    """Yield the sets of images along the leading axes, one by one: x, y and √λ."""
    x, y = (part.expand(*lead, *part.shape[-4:]) for part in (x, y))
    root = None if precision is None else precision.sqrt().expand(*lead, precision.shape[-1])
    for index in product(*map(range, lead)):
        yield index, (x[index], y[index], None if root is None else root[index])


class _Sum:
    """The gradient of images that may belong to several sets, accumulated set by set."""

    def __init__(self, images: Tensor, lead: torch.Size):
        shared = images.shape[:-4] != lead
        self.total = images.new_zeros(images.shape) if shared else images.new_empty(images.shape)
        self.slots = self.total.expand(*lead, *images.shape[-4:])
        self.spare = images.new_empty(images.shape[-4:]) if shared else None

    def part(self, index: tuple[int, ...]) -> Tensor:
        """Return the buffer for one set's gradient: the total if no other set has these images."""
        return self.slots[index] if self.spare is None else self.spare

    def add(self, index: tuple[int, ...], part: Tensor) -> None:
        """Add one set's gradient, unless it was written to the total directly."""
        if self.spare is not None:
            self.slots[index].add_(part)


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return (left.reshape(len(left), 1, -1) @ right.reshape(len(right), -1, 1))[:, 0, 0]


def check_images(x: Tensor, y: Tensor, windows: Windows, precision: Tensor | None) -> None:
    """Raise an error unless images, outputs and precisions fit each other and the windows."""
    for value, name, axes in ((x, "x", "C, H, W"), (y, "y", "O, H', W'")):
        if check_is_tensor(value, name).dim() < 4:
            raise ValueError(f"{name} must have shape [..., B, {axes}], got {list(value.shape)}")
        if value.numel() == 0:
            raise ValueError(f"{name} is empty: its shape is {list(value.shape)}")
    _check_outputs(x, y, windows)
    _same(x, y, "y")
    if precision is not None:
        _same(x, check_is_tensor(precision, "precision"), "precision")
        if precision.shape[-1:] != x.shape[-4:-3]:
            raise ValueError(
                f"precision must have shape [..., {x.shape[-4]}], one weight for every image, "
                f"got {list(precision.shape)}"
            )
        if readable(precision) and bool((precision < 0).any()):
            raise ValueError("precision must not be negative: it weights the images")
    _lead(x, y, precision)


def _check_outputs(x: Tensor, y: Tensor, windows: Windows) -> None:
    if x.shape[-4] != y.shape[-4]:
        raise ValueError(f"x holds {x.shape[-4]} images and y {y.shape[-4]}: give as many of each")
    wanted = windows.output_size((x.shape[-2], x.shape[-1]))
    if tuple(y.shape[-2:]) != wanted:
        raise ValueError(
            f"y must have one entry for every window, [..., B, O, {wanted[0]}, {wanted[1]}], for images of "
            f"{list(x.shape[-2:])} pixels, kernel {list(windows.kernel)}, stride {list(windows.stride)} "
            f"and padding {list(windows.padding)}; got {list(y.shape)}"
        )


def _same(x: Tensor, other: Tensor, name: str) -> None:
    if x.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(f"x must hold float32 or float64 numbers, got {x.dtype}: sums need them")
    if not x.is_floating_point() or other.dtype != x.dtype or other.device != x.device:
        raise ValueError(
            f"x and {name} must be floating-point numbers of one dtype on one device, got {x.dtype} on "
            f"{x.device} and {other.dtype} on {other.device}"
        )
