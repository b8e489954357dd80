"""Hamiltonian Monte Carlo for small networks, on NumPyro; JAX is imported when sampling starts."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from gilib.baselines.chains import Chains, HMCSettings
from gilib.baselines.sampling import Array, ChainCheckpoint, LogJoint, Sampler, Target
from gilib.files import check_replaceable
from gilib.linalg import ScaledIdentity
from gilib.optional import require
from gilib.priors import NealPrior, Prior
from gilib.sites import DenseWeights
from gilib.training.engine.checkpoints import hash_of
from gilib.validation import check_count, check_finite, check_instance, check_positive


def hmc(
    widths: Sequence[int],
    x: Tensor,
    y: Tensor,
    noise_variance: float,
    prior: Prior | None = None,
    settings: HMCSettings | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    deadline: float | None = None,
) -> Chains:
    """Sample the weights of a fully connected ReLU network by Hamiltonian Monte Carlo (Neal, 2011).

        P(W | x, y) ∝ Π_n N(y_n; f_W(x_n), σ²) Π_l Π_io N(W_l,io; 0, s_l²)

    Args:
        widths: widths of all layers without biases, inputs first, outputs last.
        x: inputs, `[N, widths[0]]`; N = 0 samples the prior.
        y: targets, `[N, widths[-1]]`.
        noise_variance: σ², in squared units of the targets.
        prior: `NealPrior` (s² = scale²/I, the default) or `StandardPrior` (s² = 1), with a fixed scale.
        settings: settings of the sampler; the paper's if None.
        progress: whether to show a progress bar for each phase.
        checkpoint: file in which the chains are saved twenty times a phase. If it exists, sampling resumes
            from it, with the same result; None: chains are not saved.
        deadline: value of `time.monotonic()` after which chains pause; None: never.

    Returns:
        `Chains`, with weights in the dtype of `x`. All computation is in float64; JAX's global configuration
        does not change.

    Raises:
        ValueError, TypeError: if arguments do not fit, or there is a deadline without a checkpoint.
        ImportError: without the extra `hmc`.
        StuckChainError: if a chain accepts no proposal in a complete phase.
        gilib.training.Paused: at the deadline; call again with the same arguments to continue.
        CheckpointError: if the checkpoint is damaged, or belongs to other data or settings.
        OSError: if the checkpoint cannot be written; raised before any work starts.

    >>> settings = HMCSettings(burn_in=0, samples=20, thin=2, chains=2)
    >>> chains = hmc((1, 5, 1), torch.zeros(3, 1), torch.zeros(3, 1), 0.1, settings=settings, progress=False)
    >>> chains.draw()(torch.zeros(4, 1)).shape
    torch.Size([20, 4, 1])
    """
    settings = check_instance(HMCSettings() if settings is None else settings, HMCSettings, "settings")
    scales = prior_scales(widths, NealPrior() if prior is None else prior)
    check_positive(noise_variance, "noise_variance")
    _check_data(widths, x, y)
    jax = require("jax", "hmc")
    if deadline is not None and checkpoint is None:
        raise ValueError("a deadline needs a checkpoint to pause at: give checkpoint=PATH")
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        check_replaceable(path)
    described = repr((tuple(widths), noise_variance, scales, settings))
    stop = ChainCheckpoint(path, hash_of(described, x.double(), y.double()), deadline)
    with jax.enable_x64(True):
        points, targets = (jax.numpy.asarray(data.detach().cpu().double().numpy()) for data in (x, y))
        density = log_joint(points, targets, noise_variance, scales)
        target = Target(density, scales, settings.coordinates == "scaled")
        weights, joint, acceptance, seconds = Sampler(target, settings, progress, stop).run(widths)
    return Chains(
        weights=tuple(layer.to(x) for layer in weights),
        log_joint=joint,
        acceptance=acceptance[1],
        acceptance_burn_in=acceptance[0],
        noise_variance=float(noise_variance),
        seconds=seconds,
        settings=settings,
    )


def prior_scales(widths: Sequence[int], prior: Prior) -> list[float]:
    """Return the prior standard deviation of the weights of every layer."""
    check_instance(prior, Prior, "prior")
    if len(widths) < 2:
        raise ValueError(f"widths must name at least inputs and outputs, got {list(widths)}")
    for width in widths:
        check_count(width, "every one of widths")
    like = torch.zeros((), dtype=torch.float64)
    scales = []
    for width in widths[:-1]:
        module = prior.build(DenseWeights(width + 1, 1, bias=True), like)
        precision = module.draw(like.new_zeros(1, 0))[0] if module.noise_size == 0 else None
        if not isinstance(precision, ScaledIdentity) or precision.scale.requires_grad:
            raise TypeError(f"hmc needs fixed prior variances (NealPrior, StandardPrior), got {prior!r:.40}")
        scales.append(float(precision.scale.rsqrt()))
    return scales


def forward(weights: Sequence[Array], x: Array) -> Array:
    """Evaluate the network in JAX at x `[N, D]`; a layer has weights `[I, O]`, the bias in the last row."""
    for k, layer in enumerate(weights):
        x = (x.clip(0.0) if k else x) @ layer[:-1] + layer[-1]
    return x


def log_joint(x: Array, y: Array, noise_variance: float, scales: Sequence[float]) -> LogJoint:
    """Return a JAX function for log P(y | x, W) + log P(W), in nats, with normalising constants."""

    def evaluate(weights: Sequence[Array]) -> Array:
        value = _log_normal(forward(weights, x) - y, noise_variance)
        for layer, scale in zip(weights, scales, strict=True):
            value = value + _log_normal(layer, scale**2)
        return value

    return evaluate


def _log_normal(values: Array, variance: float) -> Array:
    """Return Σ log N(value; 0, variance)."""
    return -0.5 * ((values**2).sum() / variance + values.size * math.log(2.0 * math.pi * variance))


def _check_data(widths: Sequence[int], x: Tensor, y: Tensor) -> None:
    for values, name, width in ((x, "x", widths[0]), (y, "y", widths[-1])):
        if not isinstance(values, Tensor) or not values.is_floating_point():
            kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
            raise TypeError(f"{name} must be a floating-point torch.Tensor, got {kind}")
        if values.dim() != 2 or values.shape[1] != width:
            raise ValueError(
                f"{name} must have shape [points, {width}] to fit the widths {tuple(widths)}, "
                f"got {list(values.shape)}"
            )
        check_finite(values, name)
    if len(x) != len(y):
        raise ValueError(f"x and y must hold the same number of points, got {len(x)} and {len(y)}")
