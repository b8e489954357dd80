"""What is refused before a training starts."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.training.augment import check_augment
from gilib.training.settings import Schedule, Settings
from gilib.training.speed import PRECISIONS
from gilib.validation import choice, count, instance, instance_of_tensor, same_device, tensor


def check_settings(net: Network, likelihood: Likelihood, settings: Settings) -> None:
    """Raise unless the settings of `fit` make sense for this network."""
    instance(net, Network, "net")
    instance(likelihood, Likelihood, "likelihood")
    count(settings.num_samples, "num_samples")
    choice(settings.estimator, ("draw", "pointwise"), "estimator")
    choice(settings.on_divergence, ("raise", "freeze"), "on_divergence")
    choice(settings.arithmetic, PRECISIONS, "arithmetic")
    if settings.batch_size is not None:
        count(settings.batch_size, "batch_size")
    if settings.freeze and len(net.replicas) != 1:
        raise ValueError(
            'on_divergence="freeze" is for networks with one replica axis, where the others can go on; '
            f"this one has replicas={net.replicas}"
        )
    if settings.augment is not None:
        check_augment(settings.augment)
    _check_seeds(settings.seed, net.replicas)


def check_schedule(schedule: Schedule) -> None:
    """Raise unless it is clear when training ends and where it is kept."""
    count(schedule.steps, "steps")
    count(schedule.checkpoint_every, "checkpoint_every")
    if schedule.deadline is not None and schedule.path is None:
        raise ValueError("a deadline needs a checkpoint to pause at: give checkpoint=PATH")


def _check_seeds(seed: object, replicas: tuple[int, ...]) -> None:
    """Raise unless `seed` is an integer, or as many as there are replicas."""
    if isinstance(seed, int):
        return
    if not isinstance(seed, (list, tuple)) or not all(isinstance(s, int) for s in seed):
        raise TypeError(f"seed must be an integer, or a list of one for every replica, got {seed!r}")
    if len(replicas) != 1 or len(seed) != replicas[0]:
        raise ValueError(
            f"{len(seed)} seeds need a network with replicas=({len(seed)},), this one has {replicas}"
        )


def check_data(net: Network, likelihood: Likelihood, x: Tensor, y: Tensor) -> None:
    """Raise unless inputs and targets fit the network and the likelihood."""
    tensor(x, "x", next(net.parameters(), None))
    if tuple(x.shape[-len(net.input_shape) :]) != net.input_shape:
        raise ValueError(f"x must hold points of shape {list(net.input_shape)}, got {list(x.shape)}")
    lead = tuple(x.shape[: -1 - len(net.input_shape)])
    if lead not in ((), net.replicas):
        wanted = [*net.replicas, "N", *net.input_shape]
        raise ValueError(f"x must have shape {wanted} (or without replicas), got {list(x.shape)}")
    same_device(instance_of_tensor(y, "y"), "y", x)
    likelihood.check_targets(y, x.shape[-1 - len(net.input_shape)], net.output_shape[-1])
    if y.is_floating_point():
        tensor(y, "y", x)


def check_arithmetic(arithmetic: str, x: Tensor) -> None:
    """Raise unless the network's numbers can be rounded."""
    if arithmetic != "full" and x.dtype != torch.float32:
        raise ValueError(
            f"arithmetic={arithmetic!r} rounds float32, this network is in {x.dtype}: use arithmetic='full'"
        )
