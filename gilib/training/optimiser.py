"""Adam: torch's for one network, and a batched one for many replicas with learning rates of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gilib.validation import positive

Rate = float | Sequence[float]


def learning_rates(
    modules: nn.Module, lr: Rate, groups: Mapping[str, Rate], replicas: int | None
) -> dict[str, tuple[nn.Parameter, Rate]]:
    """The learned parameters by name, each with its learning rate: a number, or one for every replica.

    Raises:
        ValueError: for rates that are not positive or not R many, prefixes that match nothing, or nothing to
            train.
    """
    named = {name.removeprefix("net."): p for name, p in modules.named_parameters() if p.requires_grad}
    if not named:
        raise ValueError("nothing to train: network and likelihood have no learned parameters")
    rates: dict[str, Rate] = dict.fromkeys(named, _checked(lr, "lr", replicas))
    for prefix, rate in groups.items():
        _checked(rate, f"lr_groups[{prefix!r}]", replicas)
        matching = [name for name in named if name.startswith(prefix)]
        if not matching:
            raise ValueError(
                f"lr_groups: no parameter's name begins with {prefix!r}; they are {', '.join(named)}"
            )
        rates.update(dict.fromkeys(matching, rate))
    return {name: (parameter, rates[name]) for name, parameter in named.items()}


def optimiser(
    modules: nn.Module,
    replicas: tuple[int, ...],
    lr: Rate,
    groups: Mapping[str, Rate],
    device: torch.device,
) -> NetworkAdam | ReplicaAdam:
    """`ReplicaAdam` where every learned parameter has the one replica axis, else `NetworkAdam`."""
    learned = [p for p in modules.parameters() if p.requires_grad]
    together = len(replicas) == 1 and all(p.shape[:1] == replicas for p in learned)
    rates = learning_rates(modules, lr, groups, replicas[0] if together else None)
    return ReplicaAdam(rates, replicas[0]) if together else NetworkAdam(rates, device)


def _checked(rate: Rate, what: str, replicas: int | None) -> Rate:
    if not isinstance(rate, Sequence):
        positive(rate, what)
        return rate
    if replicas is None or len(rate) != replicas:
        wanted = f"one number or {replicas}" if replicas else "one number (not every parameter has replicas)"
        raise ValueError(f"{what}: wanted {wanted}, got {len(rate)} learning rates")
    for r, value in enumerate(rate):
        positive(value, f"{what}[{r}]")
    return tuple(rate)


def kernels(device: torch.device) -> dict[str, Any]:
    """One kernel for all parameters, fit for a graph, on CUDA; operations on lists of them elsewhere."""
    cuda = device.type == "cuda"
    return {"foreach": not cuda, "fused": cuda, "capturable": cuda}


class NetworkAdam(torch.optim.Adam):
    """torch's Adam, one group for each learning rate.

    Args:
        rates: parameters by name, each with its learning rate.
        device: of the parameters.
    """

    def __init__(self, rates: Mapping[str, tuple[nn.Parameter, Rate]], device: torch.device):
        """Group the parameters."""
        groups: list[dict[str, Any]] = [
            {"params": [p for p, own in rates.values() if own == rate], "lr": rate}
            for rate in sorted({rate for _, rate in rates.values() if not isinstance(rate, Sequence)})
        ]
        self.kernels = kernels(device)
        super().__init__(groups, **self.kernels)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`, also from one of another device."""
        groups = [{**group, **self.kernels} for group in state["param_groups"]]
        super().load_state_dict({**state, "param_groups": groups})

    def differentiate(self, loss: Tensor) -> list[Tensor]:
        """The gradients of a scalar, to be changed in place before `update`."""
        self.zero_grad()
        loss.backward()
        return [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]

    def advance(self) -> None:
        """Count a step; torch does so in `update`."""

    def update(self, healthy: Tensor) -> None:
        """One step down the gradients, come what may: `healthy` is for replicas, which can be left out."""
        self.step()


class ReplicaAdam:
    """Adam (Kingma & Ba, 2015) for R networks at once, each with its learning rate, frozen where it diverged.

    The parameters `[R, ...]` become views of one matrix `[R, P]` for each dtype, so a step is ten operations
    on whole matrices however many parameters there are, and reads nothing back from the device.

    Args:
        rates: parameters `[R, ...]` by name, each with one learning rate or R of them.
        replicas: R.
        betas: decay of the first and second moments.
        eps: added to the root of the second moment.

    Attributes:
        active: `[R]`, whether a replica still trains.
    """

    def __init__(
        self,
        rates: Mapping[str, tuple[nn.Parameter, Rate]],
        replicas: int,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        """Move the parameters into flat storage."""
        self.betas, self.eps, self.steps = betas, eps, 0
        by_dtype: dict[torch.dtype, list[tuple[nn.Parameter, Rate]]] = {}
        for parameter, rate in rates.values():
            by_dtype.setdefault(parameter.dtype, []).append((parameter, rate))
        self.blocks = [_Block(members, replicas) for members in by_dtype.values()]
        device = self.blocks[0].values.device
        self.active = torch.ones(replicas, dtype=torch.bool, device=device)
        self.corrections = torch.zeros(2, dtype=torch.float64, device=device)

    def minimise(self, loss: Tensor, healthy: Tensor) -> None:
        """One step down the gradient of `loss`.

        Args:
            loss: a scalar, the sum over the replicas.
            healthy: `[R]`; a replica takes part if it is healthy, always was, and its gradient is finite.
        """
        self.advance()
        self.differentiate(loss)
        self.update(healthy)

    def advance(self) -> None:
        """Count a step: all of it that the host does, so that the rest can be recorded."""
        self.steps += 1
        for correction, beta in zip(self.corrections, self.betas, strict=True):
            correction.fill_(1.0 - beta**self.steps)

    def differentiate(self, loss: Tensor) -> list[Tensor]:
        """The gradients of a scalar, `[R, P]` for each dtype, to be changed in place before `update`."""
        parameters = [parameter for block in self.blocks for parameter in block.parameters]
        gradients = list(torch.autograd.grad(loss, parameters, materialize_grads=True))
        for block in self.blocks:
            own = [
                gradients.pop(0).flatten(1) if p.dim() > 1 else gradients.pop(0)[:, None]
                for p in block.parameters
            ]
            block.gradient = torch.cat(own, 1)
        return [block.gradient for block in self.blocks]

    def update(self, healthy: Tensor) -> None:
        """One step down the gradients of the replicas that are `healthy`; after `advance`."""
        for block in self.blocks:
            healthy = healthy & block.gradient.sum(1).isfinite()
        self.active &= healthy
        for block in self.blocks:
            block.step(self.corrections, self.betas, self.eps, self.active)

    def state_dict(self) -> dict[str, Any]:
        """Moments, step and which replicas are active."""
        moments = [[block.first, block.second] for block in self.blocks]
        return {"steps": self.steps, "active": self.active, "moments": moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.steps = state["steps"]
        self.active.copy_(state["active"])
        for block, (first, second) in zip(self.blocks, state["moments"], strict=True):
            block.first.copy_(first)
            block.second.copy_(second)


class _Block:
    """The parameters of one dtype, side by side."""

    def __init__(self, members: list[tuple[nn.Parameter, Rate]], replicas: int):
        self.parameters = [parameter for parameter, _ in members]
        first = self.parameters[0]
        sizes = [parameter[0].numel() for parameter, _ in members]
        self.values = torch.empty(replicas, sum(sizes), dtype=first.dtype, device=first.device)
        self.gradient, self.first, self.second = (torch.zeros_like(self.values) for _ in range(3))
        rate = torch.empty_like(self.values)
        start = 0
        for (parameter, own), size in zip(members, sizes, strict=True):
            part = slice(start, start + size)
            self.values[:, part] = parameter.detach().reshape(replicas, size)
            parameter.data = self.values[:, part].view(parameter.shape)
            rate[:, part] = rate.new_tensor(own).reshape(-1, 1)
            start += size
        self.rate = rate[:, :1] if bool((rate == rate[:, :1]).all()) else rate

    def step(self, corrections: Tensor, betas: tuple[float, float], eps: float, active: Tensor) -> None:
        self.first.lerp_(self.gradient, 1.0 - betas[0])
        self.second.mul_(betas[1]).addcmul_(self.gradient, self.gradient, value=1.0 - betas[1])
        root = (self.second / corrections[1]).sqrt_().add_(eps)
        update = (self.first / root).mul_(self.rate / corrections[0])
        self.values.sub_(update.masked_fill_(~active[:, None], 0.0))
