"""What is refused before a training starts."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.validation import choice, count, instance, instance_of_tensor, same_device, tensor


def check_settings(
    net: Network,
    likelihood: Likelihood,
    *,
    steps: int,
    batch_size: int | None,
    num_samples: int,
    estimator: str,
    on_divergence: str,
    checkpoint_every: int,
    pausable: bool,
    has_deadline: bool,
) -> None:
    """Raise unless the settings of `fit` make sense."""
    instance(net, Network, "net")
    instance(likelihood, Likelihood, "likelihood")
    count(steps, "steps")
    count(num_samples, "num_samples")
    count(checkpoint_every, "checkpoint_every")
    choice(estimator, ("draw", "local_reparameterisation"), "estimator")
    choice(on_divergence, ("raise", "freeze"), "on_divergence")
    if batch_size is not None:
        count(batch_size, "batch_size")
    if on_divergence == "freeze" and len(net.replicas) != 1:
        raise ValueError(
            'on_divergence="freeze" is for networks with one replica axis, where the others can go on; '
            f"this one has replicas={net.replicas}"
        )
    if has_deadline and not pausable:
        raise ValueError("a deadline needs a checkpoint to pause at: give checkpoint=PATH")


def check_seeds(seed: object, replicas: tuple[int, ...]) -> None:
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


def check_estimator(net: Network, estimator: str, device: torch.device) -> None:
    """Raise unless the network has the estimator."""
    if estimator == "local_reparameterisation":
        net.local_reparameterisation(1, generator=torch.Generator(device))
