"""Sufficient statistics of Bayesian linear regression: all that the posterior over weights needs of the data.

For features Φ `[..., M, I]`, pseudo-outputs v_o and precisions Λ_o of the outputs o = 1 ... O,

    A_o = Φᵀ Λ_o Φ        b_o = Φᵀ Λ_o v_o.

Outputs that share Λ share A. `Statistics` therefore stores G groups of C outputs, O = G · C: one group of O
outputs for a shared precision, or O groups of one output for a precision per output.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gilib.convolution import Windows, window_moments
from gilib.linalg.blocks import at_once, pieces
from gilib.linalg.operation import Operation, first_order, is_transformed
from gilib.linalg.products import matmul

FEW_OUTPUTS = 4  # up to this number, separate products per output are faster than one triangle
ROWS = 17  # rows of a Gram matrix per product: at I = 51 three calls, a third more than a triangle; measured
POINTS = 64  # fewest points per product in the gradient: products with fewer are slow


class Statistics(NamedTuple):
    """Precision-weighted second moments of a regression.

    Attributes:
        gram: A = ΦᵀΛΦ, `[..., G, I, I]`.
        cross: b = ΦᵀΛv, `[..., G, I, C]`.
    """

    gram: Tensor
    cross: Tensor


def shared_statistics(features: Tensor, targets: Tensor, precision: Tensor) -> Statistics:
    """Return statistics for one diagonal precision shared by all outputs (Ober & Aitchison, 2021, Eq. 11).

    Args:
        features: Φ, `[..., M, I]`.
        targets: pseudo-outputs V, `[..., M, O]`.
        precision: diagonal of Λ, `[..., M]`.

    Returns:
        `gram` `[..., 1, I, I]` and `cross` `[..., 1, I, O]`.

    >>> shared_statistics(torch.ones(3, 1), torch.ones(3, 2), torch.full((3,), 2.0)).gram
    tensor([[[6.]]])
    """
    cross = matmul(features.mT, precision[..., None] * targets)
    return Statistics(shared_gram(features, precision)[..., None, :, :], cross[..., None, :, :])


def per_output_statistics(features: Tensor, targets: Tensor, precision: Tensor) -> Statistics:
    """Return statistics for one diagonal precision per output (Ober & Aitchison, 2021, App. K.1).

    Features and targets are those of `shared_statistics`; `precision`, `[..., O, M]`, holds the diagonals of
    Λ_o. The results are `gram` `[..., O, I, I]` and `cross` `[..., O, I, 1]`.

    >>> per_output_statistics(torch.ones(3, 1), torch.ones(3, 2), torch.ones(2, 3)).cross.shape
    torch.Size([2, 1, 1])
    """
    cross = (precision * targets.mT) @ features  # [..., O, I]
    return Statistics(weighted_gram(features, precision), cross[..., None])


def full_statistics(features: Tensor, targets: Tensor, root: Tensor) -> Statistics:
    """Return statistics for a full precision matrix Λ = L Lᵀ shared by all outputs.

    Features and targets are those of `shared_statistics`; `root` is L, `[..., M, M]`. The results are `gram`
    `[..., 1, I, I]` and `cross` `[..., 1, I, O]`.
    """
    whitened = matmul(root.mT, features)
    cross = whitened.mT @ (root.mT @ targets)
    return Statistics(shared_gram(whitened)[..., None, :, :], cross[..., None, :, :])


def convolutional_statistics(
    images: Tensor, targets: Tensor, precision: Tensor, windows: Windows
) -> Statistics:
    """Return statistics of a convolution: patches are the features, with one precision per image (App. C).

    Args:
        images: `[..., M, C, H, W]`.
        targets: pseudo-outputs V, `[..., M, O, H', W']`, one for every window.
        precision: `[..., M]`, shared by all pixels and outputs.
        windows: kernel, stride, padding and boundary.

    Returns:
        `gram` `[..., 1, C K, C K]` and `cross` `[..., 1, C K, O]`; the K pixels of the kernel run fastest.

    >>> ones, windows = torch.ones(2, 1, 4, 4), Windows.of(1)
    >>> convolutional_statistics(ones, ones, torch.full((2,), 0.5), windows).gram.shape
    torch.Size([1, 1, 1])
    """
    gram, cross = window_moments(images, targets, windows, precision)
    return Statistics(gram[..., None, :, :], cross[..., None, :, :])


def shared_gram(features: Tensor, precision: Tensor | None = None) -> Tensor:
    """Return A = Σ_m λ_m φ_m φ_mᵀ, `[..., I, I]`, for one diagonal precision.

    Args:
        features: Φ, `[..., M, I]`.
        precision: λ, `[..., M]`; 1 if None.

    >>> shared_gram(torch.ones(3, 1)), shared_gram(torch.ones(3, 1), torch.full((3,), 2.0))
    (tensor([[3.]]), tensor([[6.]]))
    """
    weighted = features if precision is None else precision[..., None] * features
    return matmul(weighted.mT, features)


def weighted_gram(features: Tensor, weights: Tensor) -> Tensor:
    """Return A_o = Σ_m λ_om φ_m φ_mᵀ for every output, `[S, R, O, I, I]`; differentiable once.

    One matrix product of `weights` with the products φ_mi φ_mj, j ≥ i, gives a few rows i of all O matrices.
    This is half the arithmetic of O separate products ΦᵀΛ_oΦ. On a CPU a few samples are processed at a time,
    so that temporaries stay in the cache.

    Args:
        features: Φ, `[S, R, M, I]`, with any number of leading axes.
        weights: λ, `[R, O, M]`; its leading axes align with the last ones of `features`.

    >>> weighted_gram(torch.ones(3, 1), torch.ones(2, 3)).flatten()
    tensor([3., 3.])
    """
    if weights.dim() > features.dim():
        features = features.expand(*weights.shape[:-2], *features.shape[-2:])
    if weights.shape[-2] <= FEW_OUTPUTS or is_transformed(features, weights):
        columns = features[..., None, :, :]
        return columns.mT @ (weights[..., None] * columns)
    return _WeightedGram.apply(features, weights)


class _WeightedGram(Operation):
    """`weighted_gram` with its gradient in closed form.

    For upstream gradients B_o of A_o,

        ∂λ_om = φ_mᵀ B_o φ_m,    ∂φ_m = Σ_o λ_om (B_o + B_oᵀ) φ_m.
    """

    @staticmethod
    def forward(features: Tensor, weights: Tensor) -> Tensor:
        phi, lam, lead = _flat(features, weights)
        samples, (replicas, outputs, count), size = len(phi), lam.shape, phi.shape[-1]
        gram = phi.new_empty(samples, replicas, outputs, size, size)
        room = at_once(gram, max(outputs * size, ROWS * count) * size)
        for r in pieces(replicas, min(room, replicas)):
            own = phi[:, r] if phi.shape[1] > 1 else phi
            for s in pieces(samples, max(1, room // replicas)):
                _fill(gram[s, r], own[s], lam[r])
        return gram.reshape(*lead, outputs, size, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @first_order
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        features, weights = ctx.saved_tensors
        phi, lam, lead = _flat(features, weights)
        phi = phi.expand(-1, len(lam), -1, -1)  # [S, R, M, I]
        (samples, replicas, count, size), outputs = phi.shape, lam.shape[-2]
        gradient = gradient.reshape(samples, *lam.shape[:-1], size, size)  # [S, R, O, I, I]
        by_point = lam.mT.contiguous()  # [R, M, O]
        d_weights, d_features = gradient.new_zeros(by_point.shape), gradient.new_zeros(phi.shape)
        # blocks of replicas, samples, outputs and points whose temporaries fit into the cache together
        points = min(count, max(POINTS, at_once(phi, outputs * size)))
        room = at_once(phi, points * size)
        for r in pieces(replicas, min(max(1, room // outputs), replicas)):
            for s in pieces(samples, max(1, room // (2 * outputs * replicas))):
                for o in pieces(outputs, min(room, outputs)):
                    block = gradient[s, r, o]
                    block = (block + block.mT).movedim(-3, -2).flatten(-2)  # [s, r, I, o I]
                    for m in pieces(count, points):
                        own = phi[s, r, m]
                        products = matmul(own, block).unflatten(-1, (-1, size))  # [s, r, m, o, I]
                        d_weights[r, m, o] += torch.linalg.vecdot(products, own[:, :, :, None]).sum(0)
                        d_features[s, r, m] += (by_point[r, m, None, o] @ products)[..., 0, :]
        d_features = d_features.reshape(*lead, count, size)
        # half, because φᵀ(B + Bᵀ)φ is twice φᵀBφ
        d_weights = (0.5 * d_weights.mT).reshape(*lead[features.dim() - weights.dim() :], outputs, count)
        return d_features.sum_to_size(features.shape), d_weights.sum_to_size(weights.shape)

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


def _flat(features: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
    """Return features `[S, R, M, I]` (R = 1 if shared by replicas), weights `[R, O, M]`, and leading axes."""
    extra = features.dim() - weights.dim()
    samples, own = features.shape[:extra], features.shape[extra:-2]
    replicas = torch.broadcast_shapes(own, weights.shape[:-2])
    lead = torch.Size((*samples, *replicas))
    if own.numel() > 1:
        features = features.expand(*lead, *features.shape[-2:])
    phi = features.reshape(samples.numel(), -1, *features.shape[-2:])
    return phi, weights.expand(*replicas, *weights.shape[-2:]).reshape(-1, *weights.shape[-2:]), lead


def _fill(gram: Tensor, phi: Tensor, weights: Tensor) -> None:
    """Write the Gram matrices `[s, r, O, I, I]` of features `[s, r or 1, M, I]`, `ROWS` rows at a time."""
    phi = phi.movedim(0, -2).contiguous()  # [r, M, s, I]
    for i in pieces(phi.shape[-1], ROWS):
        products = phi[..., i, None] * phi[..., None, i.start :]  # [r, M, s, rows, I - i]
        rows = matmul(weights, products.flatten(2)).unflatten(-1, products.shape[2:]).movedim(2, 0)
        gram[..., i, i.start :] = rows  # [s, r, O, rows, I - i]
        gram[..., i.start :, i] = rows.mT
