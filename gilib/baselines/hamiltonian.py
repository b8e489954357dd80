"""Hamiltonian Monte Carlo for small networks, on NumPyro: what the approximations are compared with.

JAX is imported when sampling starts; it computes in float64 within `hmc`, its global configuration untouched.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gilib.baselines.chains import Chains, HMCSettings
from gilib.baselines.optional import require
from gilib.linalg import ScaledIdentity
from gilib.priors import NealPrior, Prior
from gilib.validation import count, instance, positive

Array = Any  # jax.Array: JAX is optional
LogJoint = Callable[[Sequence[Array]], Array]
PHASES = ("burn-in", "sampling")


class StuckChainError(RuntimeError):
    """A chain accepted no proposal: its states show where it started, not the posterior."""


def hmc(
    widths: Sequence[int],
    x: Tensor,
    y: Tensor,
    noise_variance: float,
    prior: Prior | None = None,
    settings: HMCSettings | None = None,
    progress: bool = True,
) -> Chains:
    """Sample the weights of a fully connected ReLU network by Hamiltonian Monte Carlo (Neal, 2011).

        P(W | x, y) ∝ Π_n N(y_n; f_W(x_n), σ²) Π_l Π_io N(W_l,io; 0, s_l²)

    Args:
        widths: of the layers, inputs first, outputs last, without biases: (1, 50, 50, 1) for the toy problem.
        x: inputs, `[N, widths[0]]`; N = 0 samples the prior.
        y: targets, `[N, widths[-1]]`.
        noise_variance: σ², in squared units of the targets.
        prior: `NealPrior` (s² = scale²/I, the default) or `StandardPrior` (s² = 1): fixed Gaussian weights.
        settings: `HMCSettings`; None: the paper's.
        progress: whether NumPyro shows a progress bar for each phase.

    Returns:
        `Chains`, their weights in the dtype of `x`; all computation is in float64.

    Raises:
        ImportError: without the extra `gilib[hmc]`.
        StuckChainError: if a chain accepts nothing in a whole phase.

    >>> settings = HMCSettings(burn_in=0, samples=20, thin=2, chains=2)
    >>> chains = hmc((1, 5, 1), torch.zeros(3, 1), torch.zeros(3, 1), 0.1, settings=settings, progress=False)
    >>> chains.draw()(torch.zeros(4, 1)).shape
    torch.Size([20, 4, 1])
    """
    settings = instance(HMCSettings() if settings is None else settings, HMCSettings, "settings")
    scales = prior_scales(widths, NealPrior() if prior is None else prior)
    positive(noise_variance, "noise_variance")
    _check_data(widths, x, y)
    jax = require("jax", "hmc")
    started = time.perf_counter()
    with jax.enable_x64(True):
        points, targets = (jax.numpy.asarray(data.detach().cpu().double().numpy()) for data in (x, y))
        density = log_joint(points, targets, noise_variance, scales)
        target = _Target(density, scales, settings.coordinates == "scaled")
        sampler = _Sampler(target, settings, progress)
        weights, joint, acceptance = sampler.run(widths)
    return Chains(
        weights=tuple(torch.as_tensor(layer).to(x) for layer in weights),
        log_joint=torch.as_tensor(joint),
        acceptance=torch.as_tensor(acceptance[1]),
        acceptance_burn_in=torch.as_tensor(acceptance[0]),
        noise_variance=float(noise_variance),
        seconds=time.perf_counter() - started,
        settings=settings,
    )


def prior_scales(widths: Sequence[int], prior: Prior) -> list[float]:
    """Prior standard deviation of the weights of every layer.

    >>> prior_scales((3, 8, 1), NealPrior())
    [0.5, 0.333...]
    """
    instance(prior, Prior, "prior")
    if len(widths) < 2:
        raise ValueError(f"widths must name at least inputs and outputs, got {list(widths)}")
    for width in widths:
        count(width, "every one of widths")
    like = torch.zeros((), dtype=torch.float64)
    scales = []
    for width in widths[:-1]:
        module = prior.build(width + 1, 1, like)
        precision = module.draw(like.new_zeros(1, 0))[0] if module.noise_size == 0 else None
        if not isinstance(precision, ScaledIdentity):
            raise TypeError(
                f"hmc needs fixed prior variances (NealPrior, StandardPrior), got {type(prior).__name__}"
            )
        scales.append(float(precision.scale.rsqrt()))
    return scales


def forward(weights: Sequence[Array], x: Array) -> Array:
    """The network in JAX: weights `[I, O]` of every layer, bias in the last row; x `[N, D]` to `[N, O]`."""
    for k, layer in enumerate(weights):
        x = (x.clip(0.0) if k else x) @ layer[:-1] + layer[-1]
    return x


def log_joint(x: Array, y: Array, noise_variance: float, scales: Sequence[float]) -> LogJoint:
    """log P(y | x, W) + log P(W) in JAX, normalising constants included, nats."""

    def evaluate(weights: Sequence[Array]) -> Array:
        value = _log_normal(forward(weights, x) - y, noise_variance)
        for layer, scale in zip(weights, scales, strict=True):
            value = value + _log_normal(layer, scale**2)
        return value

    return evaluate


def _log_normal(values: Array, variance: float) -> Array:
    """Σ log N(value; 0, variance)."""
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
        if not bool(torch.isfinite(values).all()):
            raise ValueError(f"{name} holds {int((~torch.isfinite(values)).sum())} NaN or infinite entries")
    if len(x) != len(y):
        raise ValueError(f"x and y must hold the same number of points, got {len(x)} and {len(y)}")


@dataclass(frozen=True)
class _Target:
    """The density in the coordinates in which steps are taken."""

    log_joint: LogJoint
    scales: Sequence[float]
    scaled: bool

    def weights(self, position: Sequence[Array]) -> Sequence[Array]:
        """From coordinates, with any leading axes, to weights."""
        if not self.scaled:
            return position
        return [scale * z for scale, z in zip(self.scales, position, strict=True)]

    def potential(self, position: Sequence[Array]) -> Array:
        """Minus the log joint density of the WEIGHTS: constants do not matter to the dynamics."""
        return -self.log_joint(self.weights(position))


@dataclass(frozen=True)
class _Sampler:
    """Two phases of all chains, side by side."""

    target: _Target
    settings: HMCSettings
    progress: bool

    def run(self, widths: Sequence[int]) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray]]:
        """Weights `[chains, kept, I, O]`, log joints `[chains, kept]` and the acceptance of both phases."""
        random, settings = require("jax.random", "hmc"), self.settings
        keys = random.split(random.key(settings.seed), 2)
        position: Sequence[Array] = self._start(widths)
        acceptance = np.full(settings.chains, np.nan)
        if settings.burn_in:
            run = self._phase(keys[0], position, 0, settings.burn_in, settings.burn_in)
            position, acceptance = run.last_state.z, np.array(run.last_state.mean_accept_prob).reshape(-1)
        run = self._phase(keys[1], position, 1, settings.samples, settings.thin)
        states = [np.array(layer) for layer in run.get_samples(group_by_chain=True)]
        joint = -np.array(run.get_extra_fields(group_by_chain=True)["potential_energy"])
        return (
            list(self.target.weights(states)),
            joint,
            [acceptance, np.array(run.last_state.mean_accept_prob).reshape(-1)],
        )

    def _start(self, widths: Sequence[int]) -> list[np.ndarray]:
        """A start for each chain, `[chains, I, O]`; NumPyro wants one chain without the first axis."""
        generator, chains = np.random.default_rng(self.settings.seed), self.settings.chains
        lead = (chains,) if chains > 1 else ()
        shapes = [(*lead, inputs + 1, outputs) for inputs, outputs in itertools.pairwise(widths)]
        position = [generator.standard_normal(shape) for shape in shapes]
        if self.settings.start == "prior" and not self.target.scaled:
            return [scale * normal for scale, normal in zip(self.target.scales, position, strict=True)]
        return position

    def _phase(self, key: Array, position: Sequence[Array], phase: int, steps: int, thin: int) -> Any:
        """One phase with its own step size; every chain must move."""
        infer, settings = require("numpyro.infer", "hmc"), self.settings
        step_size = settings.step_size if phase else settings.step_size_burn_in
        kernel = infer.HMC(
            potential_fn=require("jax", "hmc").jit(self.target.potential),
            step_size=step_size,
            num_steps=settings.leapfrog_steps,
            trajectory_length=None,
            adapt_step_size=False,
            adapt_mass_matrix=False,
        )
        run = infer.MCMC(
            kernel,
            num_warmup=0,
            num_samples=steps,
            num_chains=settings.chains,
            thinning=thin,
            chain_method="vectorized",
            progress_bar=self.progress,
        )
        run.run(key, init_params=position, extra_fields=("potential_energy",))
        before, after = np.array(position[0]), np.array(run.last_state.z[0])
        stuck = (before == after).reshape(settings.chains, -1).all(1)
        if stuck.any():
            raise StuckChainError(
                f"{stuck.sum()} of {settings.chains} chains accepted none of {steps} proposals of the "
                f'{PHASES[phase]} phase: use start="prior", or make its step size smaller than {step_size}'
            )
        return run
