"""Moments of all windows of an image from a few lags.

If there is a window at every pixel and boundaries are circular, all shifts of an image have the
same windows, so that

    (X'ᵀX')[cδ, c'δ'] = R_xx[δ' - δ, c, c']            (Ober & Aitchison, 2021, Eq. 43).

With zeros around the image the same sum runs over all windows that touch the image, including some that a
layer with padding p < k-1 does not have. Inclusion and exclusion removes these exactly:

    all - above and below - left and right + the corners.

Every term is a correlation of a strip whose rows (or columns) count as channels. X'ᵀY needs no correction: y
is zero where there is no window. Other windows are reduced to these by `gilib.convolution.phases`.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from gilib.convolution.borders import Correlation, Strips
from gilib.convolution.phases import Phases
from gilib.convolution.windows import Windows


def moments(
    kind: type[Correlation], x: Tensor, y: Tensor, root: Tensor | None, windows: Windows
) -> tuple[Tensor, Tensor]:
    """Return X'ᵀX' `[C K, C K]` and X'ᵀY `[C K, O]` of x `[B, C, H, W]` and y `[B, O, H', W']`.

    `kind` is the class of the correlations; `root` is √λ of every image, `[B]`, or None for ones.
    """
    if not windows.at_every_pixel(x.shape[-2:]):
        phases = Phases(windows, (y.shape[-2], y.shape[-1]))
        gram, cross = moments(kind, phases.split(x), y, root, phases.inside)
        needed = phases.needed_indices(x.shape[1], x)
        return gram[needed[:, None], needed], cross[needed]
    whole, *borders = Strips.all(x.shape[-2:], windows)
    auto, lags = whole.correlation(x, kind)(x[None], y[None], root)
    assert lags is not None
    gram = whole.spread(auto)[0]
    for strips in borders:
        images = strips.cut(x)
        pairs = strips.spread(strips.correlation(images, kind)(images, None, root)[0])
        for everywhere, here in strips.places():
            gram[everywhere].add_(pairs[here], alpha=strips.sign)
    return gram.flatten(0, 2).flatten(1), lags[:, 0].transpose(0, 1).flatten(0, 1)


def write_gradients(
    kind: type[Correlation],
    x: Tensor,
    y: Tensor,
    root: Tensor | None,
    windows: Windows,
    d_gram: Tensor,
    d_cross: Tensor,
    d_x: Tensor,
    d_y: Tensor,
) -> None:
    """Write the gradients of x and y to `d_x`, which may be x itself, and `d_y`."""
    channels = x.shape[1]
    if not windows.at_every_pixel(x.shape[-2:]):
        phases = Phases(windows, (y.shape[-2], y.shape[-1]))
        needed = phases.needed_indices(channels, x)
        size = channels * prod(phases.count) * phases.inside.pixels
        d_pairs, d_lags = d_gram.new_zeros(size, size), d_cross.new_zeros(size, d_cross.shape[1])
        d_pairs[needed[:, None], needed], d_lags[needed] = d_gram, d_cross
        parts = phases.split(x)  # a copy, which its gradient overwrites
        write_gradients(kind, parts, y, root, phases.inside, d_pairs, d_lags, parts, d_y)
        phases.join(parts, d_x)
        return
    d_pairs = d_gram.reshape((channels, *windows.kernel) * 2)
    d_lags = d_cross.unflatten(0, (channels, -1)).transpose(0, 1)[:, None]
    whole, *borders = Strips.all(x.shape[-2:], windows)
    edges = [strips.cut(x) for strips in borders]  # d_x may be x itself: cut strips before it is overwritten
    d_auto = whole.gather(d_pairs[None])
    whole.correlation(x, kind).write_adjoint(x[None], y[None], root, d_auto, d_lags, d_x[None], d_y[None])
    for strips, images in zip(borders, edges, strict=True):
        d_part = strips.zeros(d_gram, channels)
        for everywhere, here in strips.places():
            d_part[here].add_(d_pairs[everywhere], alpha=strips.sign)
        d_images, d_auto = torch.empty_like(images), strips.gather(d_part)
        strips.correlation(images, kind).write_adjoint(images, None, root, d_auto, d_lags, d_images, None)
        strips.add_back(d_images, d_x)
