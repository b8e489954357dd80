"""Checks of the arguments of `gilib.fit`, made before a training starts."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from gilib import validation
from gilib.files import check_replaceable
from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.training.engine.minibatches import check_augment
from gilib.training.engine.settings import Checkpoint, Settings, identified
from gilib.training.gradients.objective import ESTIMATORS


def check_settings(net: Network, likelihood: Likelihood, settings: Settings) -> None:
    """Raise unless the settings of `fit` suit this network and likelihood."""
    validation.check_instance(likelihood, Likelihood, "likelihood")
    validation.check_count(settings.num_samples, "num_samples")
    validation.check_choice(settings.estimator, ESTIMATORS, "estimator")
    validation.check_choice(settings.on_divergence, ("raise", "freeze"), "on_divergence")
    if settings.batch_size is not None:
        validation.check_count(settings.batch_size, "batch_size")
    if settings.freeze and len(net.replicas) != 1:
        raise ValueError(
            'on_divergence="freeze" needs a network with one replica axis, where the other replicas can '
            f"go on; this one has replicas={net.replicas}"
        )
    if settings.augment is not None:
        check_augment(settings.augment)
    if settings.kl_weight is not None and not callable(settings.kl_weight):
        raise TypeError(
            "kl_weight must be a function of the step, such as gilib.objectives.SteppedTempering, "
            f"got {settings.kl_weight!r}: write lambda step: {settings.kl_weight!r}"
        )
    if settings.kl_weight is not None and not settings.rule.supports_kl_weight:
        raise ValueError(
            f"{type(settings.rule).__name__} has no Kullback-Leibler term to weight: leave kl_weight out"
        )
    _check_seeds(settings.seed, net.replicas)
    if likelihood.replicas not in ((), net.replicas):
        raise ValueError(
            f"the likelihood has replicas={likelihood.replicas}, the network has replicas={net.replicas}: "
            "give both the same, or the likelihood none"
        )


def as_checkpoint(given: Any, settings: Settings) -> Checkpoint | None:
    """Return the checkpoint that was given, or one with default settings for a path, if it can be written."""
    if given is None:
        return None
    checkpoint = Checkpoint(given) if isinstance(given, (str, os.PathLike)) else given
    validation.check_instance(checkpoint, Checkpoint, "checkpoint")
    if not identified(settings.augment):
        raise TypeError(
            f"a checkpoint cannot tell augment={settings.augment!r} from another function: write it as a "
            "frozen dataclass with __call__, or as a function of a module, or train without a checkpoint"
        )
    check_replaceable(checkpoint.path)
    return checkpoint


def _check_seeds(seed: object, replicas: tuple[int, ...]) -> None:
    for each in seed if isinstance(seed, (list, tuple)) else [seed]:
        if type(each) is int and not -(2**63) <= each < 2**63:
            raise ValueError(f"seed must have at most 63 bits, got {each}")
    if type(seed) is int:
        return
    if not isinstance(seed, (list, tuple)) or not all(type(s) is int for s in seed):
        raise TypeError(f"seed must be an integer, or a list of one integer for each replica, got {seed!r}")
    if len(replicas) != 1 or len(seed) != replicas[0]:
        raise ValueError(
            f"{len(seed)} seeds need a network with replicas=({len(seed)},), this one has {replicas}"
        )


def as_data(net: Network, x: object, y: object) -> tuple[Tensor, Tensor]:
    """Convert inputs and targets to tensors: numpy floats get the network's dtype, labels become int64."""
    like = net.layers.reference_tensor()
    x, y = validation.as_inputs(x, "x", like), validation.as_tensor(y, "y", like)
    return x, y if y.is_floating_point() or y.is_complex() else y.long()


def input_range(x: Tensor, point_axes: int) -> Tensor:
    """Return the smallest and the largest value of every input over all points, `[2, ...]`, on the CPU."""
    flat = x.detach().reshape(-1, *x.shape[x.dim() - point_axes :])
    return torch.stack([flat.amin(0), flat.amax(0)]).cpu()


def check_data(net: Network, likelihood: Likelihood, x: Tensor, y: Tensor) -> None:
    """Raise unless inputs and targets fit the network and the likelihood."""
    validation.check_tensor(x, "x", net.layers.reference_tensor())
    rank = len(net.input_shape)
    if tuple(x.shape[-rank:]) != net.input_shape:
        raise ValueError(f"x must hold points of shape {list(net.input_shape)}, got {list(x.shape)}")
    _check_lead(x, "x", -1 - rank, net.replicas)
    validation.check_same_device(validation.check_is_tensor(y, "y"), "y", x)
    likelihood.check_output_shape(net.output_shape)
    likelihood.check_targets(y, x.shape[-1 - rank], net.output_shape[-1])
    if y.is_floating_point():
        validation.check_tensor(y, "y", x)
    _check_lead(y, "y", likelihood.points_axis, net.replicas)


def check_differentiable(*values: Tensor) -> None:
    """Raise if torch records no gradients for these tensors, as under inference mode."""
    if torch.is_inference_mode_enabled() or any(value.is_inference() for value in values):
        raise ValueError(
            "fit cannot train within torch.inference_mode(), nor on tensors that were made there: train "
            "outside of it, on x.clone() and y.clone(), and build the network there"
        )


def _check_lead(values: Tensor, name: str, axis: int, replicas: tuple[int, ...]) -> None:
    if tuple(values.shape[:axis]) not in ((), replicas) or values.dim() < -axis:
        wanted = [*replicas, "N", *values.shape[values.dim() + axis + 1 :]]
        hint = " (or without replicas)" if replicas else ": axes in front are for networks with replicas"
        raise ValueError(f"{name} must have shape {wanted}{hint}, got {list(values.shape)}")


def check_arithmetic(arithmetic: str, x: Tensor) -> None:
    """Raise if rounded arithmetic is asked of a network that is not in float32."""
    if arithmetic != "full" and x.dtype != torch.float32:
        raise ValueError(
            f"arithmetic={arithmetic!r} rounds float32, this network is in {x.dtype}: use arithmetic='full'"
        )
