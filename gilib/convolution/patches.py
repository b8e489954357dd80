"""Moments of any windows from explicit patches, of as few images at a time as fit into the cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from torch import Tensor

from gilib.convolution.images import at_once, padded, unpadded
from gilib.convolution.windows import Windows
from gilib.linalg.blocks import pieces

CHUNK = 2**19  # entries of the patches built at a time: 2 MB in float32
SHARE = 1.0  # limit of these entries on a CPU, as a multiple of the entries of the images


def patches(images: Tensor, windows: Windows) -> Tensor:
    """Return the windows of padded `images` `[B, C, H, W]` as a view `[C, k_h, k_w, B, H', W']`."""
    images = padded(images, windows)
    (height, width), (down, across) = windows.kernel, windows.stride
    return images.unfold(2, height, down).unfold(3, width, across).permute(1, 4, 5, 0, 2, 3)


def write_images(values: Tensor, images: Tensor, windows: Windows) -> None:
    """Write the adjoint of `patches` to `images`: sum the values of every pixel over all windows."""
    (down, across), (above, left) = windows.stride, windows.padding
    rows, columns = values.shape[-2:]
    around = images.new_zeros(*images.shape[:2], images.shape[2] + 2 * above, images.shape[3] + 2 * left)
    values = values.movedim(3, 0)  # [B, C, k_h, k_w, H', W']
    for a, b in product(*map(range, windows.kernel)):
        seen = around[:, :, a : a + down * rows : down, b : b + across * columns : across]
        seen[..., :rows, :columns] += values[:, :, a, b]
    images.copy_(unpadded(around, windows))


def _chunks(x: Tensor, y: Tensor, windows: Windows) -> Iterator[slice]:
    per_image = max(1, x.shape[1] * windows.pixels * y.shape[-2:].numel())
    step = max(1, at_once(CHUNK, x, SHARE) // per_image)
    return pieces(len(x), step)


def _rows(
    x: Tensor, y: Tensor, weights: Tensor | None, windows: Windows, chunk: slice
) -> tuple[Tensor, Tensor]:
    """Return patches `[C K, n]` and pseudo-outputs `[O, n]` of some images, times the weights `[B]`."""
    x, y = x[chunk], y[chunk]
    if weights is not None:
        factors = weights[chunk, None, None, None]
        x, y = factors * x, factors * y
    size = x.shape[1] * windows.pixels
    return patches(x, windows).reshape(size, -1), y.transpose(0, 1).reshape(y.shape[1], -1)


def moments(x: Tensor, y: Tensor, root: Tensor | None, windows: Windows) -> tuple[Tensor, Tensor]:
    """Return weighted X'ᵀX' `[C K, C K]` and X'ᵀY `[C K, O]` of x `[B, C, H, W]` and y `[B, O, H', W']`."""
    size = x.shape[1] * windows.pixels
    gram, cross = x.new_zeros(size, size), x.new_zeros(size, y.shape[1])
    for chunk in _chunks(x, y, windows):
        rows, targets = _rows(x, y, root, windows, chunk)
        gram.addmm_(rows, rows.mT)
        cross.addmm_(rows, targets.mT)
    return gram, cross


def write_gradients(
    x: Tensor,
    y: Tensor,
    root: Tensor | None,
    windows: Windows,
    d_gram: Tensor,
    d_cross: Tensor,
    d_x: Tensor,
    d_y: Tensor,
) -> None:
    """Write the gradients of x and y to `d_x` and `d_y`."""
    symmetric, weights = d_gram + d_gram.mT, None if root is None else root.square()
    shape = (x.shape[1], *windows.kernel)
    for chunk in _chunks(x, y, windows):
        rows, targets = _rows(x, y, weights, windows, chunk)
        d_rows = (symmetric @ rows).addmm_(d_cross, targets)
        d_targets = d_cross.mT @ rows
        images = (chunk.stop - chunk.start, *y.shape[-2:])
        write_images(d_rows.view(*shape, *images), d_x[chunk], windows)
        d_y[chunk] = d_targets.view(-1, *images).transpose(0, 1)
