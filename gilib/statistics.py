"""Sufficient statistics of Bayesian linear regression: all that a posterior over weights asks of data.

For features Φ `[..., M, I]`, pseudo-outputs v_o and precisions Λ_o of the outputs o = 1 ... O,

    A_o = Φᵀ Λ_o Φ        b_o = Φᵀ Λ_o v_o.

Outputs that share Λ share A. `Statistics` therefore keeps G groups of C outputs, O = G · C: one group of O
outputs for a shared precision, O groups of one output for a precision per output.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gilib.convolution import Windows, window_moments

FEW_OUTPUTS = 4  # up to here separate products are faster than the triangle
CHUNK = 2**20  # entries of the temporary in the backward pass: a few MB, so that it stays in cache


class Statistics(NamedTuple):
    """Precision-weighted second moments of a regression.

    Attributes:
        gram: A = ΦᵀΛΦ, `[..., G, I, I]`.
        cross: b = ΦᵀΛv, `[..., G, I, C]`.
    """

    gram: Tensor
    cross: Tensor


def shared_statistics(features: Tensor, targets: Tensor, precision: Tensor) -> Statistics:
    """Statistics for one diagonal precision shared by all outputs (Ober & Aitchison, 2021, Eq. 11).

    Args:
        features: Φ, `[..., M, I]`.
        targets: pseudo-outputs V, `[..., M, O]`.
        precision: diagonal of Λ, `[..., M]`.

    Returns:
        `gram` `[..., 1, I, I]` and `cross` `[..., 1, I, O]`.

    >>> shared_statistics(torch.ones(3, 1), torch.ones(3, 2), torch.full((3,), 2.0)).gram
    tensor([[[6.]]])
    """
    weighted = (precision[..., None] * features).mT  # [..., I, M]
    return Statistics((weighted @ features)[..., None, :, :], (weighted @ targets)[..., None, :, :])


def per_output_statistics(features: Tensor, targets: Tensor, precision: Tensor) -> Statistics:
    """Statistics for one diagonal precision per output (Ober & Aitchison, 2021, App. K.1).

    Args:
        features: Φ, `[..., M, I]`.
        targets: pseudo-outputs V, `[..., M, O]`.
        precision: diagonals of Λ_o, `[..., O, M]`.

    Returns:
        `gram` `[..., O, I, I]` and `cross` `[..., O, I, 1]`.

    >>> per_output_statistics(torch.ones(3, 1), torch.ones(3, 2), torch.ones(2, 3)).cross.shape
    torch.Size([2, 1, 1])
    """
    cross = (precision * targets.mT) @ features  # [..., O, I]
    return Statistics(weighted_gram(features, precision), cross[..., None])


def full_statistics(features: Tensor, targets: Tensor, root: Tensor) -> Statistics:
    """Statistics for a full precision matrix Λ = L Lᵀ shared by all outputs.

    Args:
        features: Φ, `[..., M, I]`.
        targets: pseudo-outputs V, `[..., M, O]`.
        root: L, `[..., M, M]`.

    Returns:
        `gram` `[..., 1, I, I]` and `cross` `[..., 1, I, O]`.

    >>> full_statistics(torch.ones(3, 1), torch.ones(3, 2), torch.eye(3)).gram
    tensor([[[3.]]])
    """
    whitened = root.mT @ features
    gram, cross = whitened.mT @ whitened, whitened.mT @ (root.mT @ targets)
    return Statistics(gram[..., None, :, :], cross[..., None, :, :])


def convolutional_statistics(
    images: Tensor, targets: Tensor, precision: Tensor, windows: Windows
) -> Statistics:
    """Statistics of a convolution, its patches for features, one precision per image (ibid., App. C).

    Args:
        images: `[..., M, C, H, W]`.
        targets: pseudo-outputs V, `[..., M, O, H', W']`, one for every window.
        precision: `[..., M]`, shared by all pixels and outputs.
        windows: kernel, stride, padding and boundary.

    Returns:
        `gram` `[..., 1, C K, C K]` and `cross` `[..., 1, C K, O]`, the K pixels of the kernel fastest.

    >>> ones, windows = torch.ones(2, 1, 4, 4), Windows.of(1)
    >>> convolutional_statistics(ones, ones, torch.full((2,), 0.5), windows).gram.shape
    torch.Size([1, 1, 1])
    """
    gram, cross = window_moments(images, targets, windows, precision)
    return Statistics(gram[..., None, :, :], cross[..., None, :, :])


def weighted_gram(features: Tensor, weights: Tensor) -> Tensor:
    """A_o = Σ_m λ_om φ_m φ_mᵀ for every output at once.

    Row i of all O matrices is one matrix product of `weights` with the products φ_mi φ_mj, j ≥ i: half the
    arithmetic of O separate products ΦᵀΛ_oΦ, and no `[O, M, I]` temporary. Differentiable once.

    Args:
        features: Φ, `[S, R, M, I]`, with any number of leading axes.
        weights: λ, `[R, O, M]`; its leading axes align with the last ones of `features`.

    Returns:
        `[S, R, O, I, I]`, symmetric.

    >>> weighted_gram(torch.ones(3, 1), torch.ones(2, 3)).flatten()
    tensor([3., 3.])
    """
    if weights.dim() > features.dim():
        features = features.expand(*weights.shape[:-2], *features.shape[-2:])
    if weights.shape[-2] <= FEW_OUTPUTS:
        columns = features[..., None, :, :]
        return columns.mT @ (weights[..., None] * columns)
    gram: Tensor = _WeightedGram.apply(features, weights)
    return gram


class _WeightedGram(torch.autograd.Function):
    @staticmethod
    def forward(features: Tensor, weights: Tensor) -> Tensor:
        samples, replicas, points = _split_axes(features, weights)
        flat = features.reshape(samples, *features.shape[points:])  # [S, R', M, I]
        phi = flat.movedim(0, -2).contiguous()  # [R', M, S, I]
        size, outputs = phi.shape[-1], weights.shape[-2]
        gram = phi.new_empty(samples, *replicas, outputs, size, size)
        for i in range(size):
            products = (phi[..., i:] * phi[..., i : i + 1]).flatten(-2)  # [R', M, S (I - i)]
            row = (weights @ products).unflatten(-1, (samples, size - i)).movedim(-2, 0)  # [S, R, O, I - i]
            gram[..., i, i:] = row
            gram[..., i:, i] = row
        return gram.reshape(*features.shape[:points], *gram.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        features, weights = ctx.saved_tensors
        samples, replicas, points = _split_axes(features, weights)
        phi = features.reshape(samples, *features.shape[points:]).mT.expand(-1, *replicas, -1, -1)
        gradient = gradient.reshape(samples, *gradient.shape[points:])  # [S, R, O, I, I]
        gradient = gradient + gradient.mT
        size, count = phi.shape[-2:]
        chunk = max(1, CHUNK // (size * count))
        d_weights = gradient.new_zeros(*replicas, *weights.shape[-2:])
        d_features = gradient.new_zeros(phi.shape)  # [S, R, I, M]
        for s in range(samples):
            for start in range(0, weights.shape[-2], chunk):
                group = slice(start, start + chunk)
                block = gradient[s][..., group, :, :]
                products = (block.flatten(-3, -2) @ phi[s]).unflatten(-2, block.shape[-3:-1])  # [R, o, I, M]
                d_weights[..., group, :] += (products * phi[s][..., None, :, :]).sum(-2)
                d_features[s] += products.mul_(weights[..., group, None, :]).sum(-3)
        d_features = d_features.mT.reshape(*features.shape[:points], *replicas, count, size)
        return d_features.sum_to_size(features.shape), (0.5 * d_weights).sum_to_size(weights.shape)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], features: Tensor, weights: Tensor
    ) -> tuple[Tensor, int]:
        features_dim, weights_dim = in_dims
        if weights_dim is None:
            return _WeightedGram.apply(features.movedim(features_dim or 0, 0), weights), 0
        weights = weights.movedim(weights_dim, 0)
        if features_dim is None:
            features = features.expand(info.batch_size, *features.shape)
        else:
            features = features.movedim(features_dim, 0)
        position = features.dim() - weights.dim()
        return _WeightedGram.apply(features.movedim(0, position), weights), position


def _split_axes(features: Tensor, weights: Tensor) -> tuple[int, torch.Size, int]:
    """The number S of samples, the replica axes, and the number of leading axes that S merges."""
    extra = features.dim() - weights.dim()
    samples = features.shape[:extra].numel()
    return samples, torch.broadcast_shapes(features.shape[extra:-2], weights.shape[:-2]), extra
