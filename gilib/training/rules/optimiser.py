"""Adam's two steps: torch's for one network, and a batched one for many replicas with rates of their own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Rate = float | Sequence[float]
Rates = Mapping[str, tuple[nn.Parameter, Rate]]


def adam_options(device: torch.device, steady: bool) -> dict[str, Any]:
    """One kernel for all parameters where steps may be recorded; operations on lists of them elsewhere."""
    cuda = device.type == "cuda"
    return {"foreach": not (cuda or steady), "fused": cuda or steady, "capturable": cuda}


class Optimiser(ABC):
    """Takes steps down given gradients.

    Attributes:
        parameters: that it moves, in the order in which it takes their gradients.
        per_replica: whether it moves every replica by itself, and so can leave one out.
    """

    parameters: list[nn.Parameter]
    per_replica: bool = False

    @abstractmethod
    def advance(self, factor: float = 1.0) -> None:
        """Count a step and set the factor of the learning rates: all that the host does."""

    @abstractmethod
    def update(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        """One step down the gradients, after `advance`.

        Args:
            gradients: one for each parameter, of the same shape.
            active: `[R]`, set to False, in place, for replicas whose gradient is not finite.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Moments and step."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`, also from one of another device."""


class NetworkAdam(Optimiser):
    """torch's Adam, one group for each learning rate.

    Args:
        rates: parameters by name, each with its learning rate.
        betas: decay of the first and second moments.
        eps: added to the root of the second moment.
        device: of the parameters.
        scheduled: whether `advance` will be given factors.
        steady: whether steps may be recorded.
    """

    def __init__(
        self,
        rates: Rates,
        device: torch.device,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        scheduled: bool = False,
        steady: bool = False,
    ):
        """Group the parameters."""
        self.kernels, self.scheduled = adam_options(device, steady), scheduled
        self.rates = sorted({rate for _, rate in rates.values() if not isinstance(rate, Sequence)})
        groups: list[dict[str, Any]] = [
            {"params": [p for p, own in rates.values() if own == rate], "lr": self._held(rate, device)}
            for rate in self.rates
        ]
        self.adam = torch.optim.Adam(groups, betas=betas, eps=eps, **self.kernels)
        self.parameters = [p for group in self.adam.param_groups for p in group["params"]]

    def _held(self, rate: float, device: torch.device) -> float | Tensor:
        """A rate that changes is a tensor where steps may be recorded."""
        return torch.tensor(rate, device=device) if self.scheduled and self.kernels["fused"] else rate

    def advance(self, factor: float = 1.0) -> None:
        """Set the learning rates; torch counts the step in `update`."""
        if self.scheduled:
            for group, rate in zip(self.adam.param_groups, self.rates, strict=True):
                if self.kernels["fused"]:
                    group["lr"].fill_(factor * rate)
                else:
                    group["lr"] = factor * rate

    def update(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        """One step down the gradients; no replica can be left out.

        Where one kernel does it, that is on an accelerator, where failures are seen later, it is left out
        altogether once a bound was not finite: so the parameters that made it so are still there to be seen.
        """
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient.stride() != parameter.stride():  # Adam's operations on lists want them alike
                gradient = torch.empty_like(parameter).copy_(gradient)
            parameter.grad = gradient
        if self.kernels["fused"]:
            self.adam.found_inf = (~active.all()).float()  # type: ignore[attr-defined]
        self.adam.step()

    def state_dict(self) -> dict[str, Any]:
        """Torch's own."""
        return self.adam.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the kernels of this device and the rates as they are held here."""
        own = [self.kernels | {"lr": group["lr"]} for group in self.adam.param_groups]
        groups = [group | here for group, here in zip(state["param_groups"], own, strict=True)]
        self.adam.load_state_dict({**state, "param_groups": groups})


class ReplicaAdam(Optimiser):
    """Adam (Kingma & Ba, 2015) for R networks at once, each with its learning rate, frozen where it diverged.

    The parameters `[R, ...]` become views of one matrix `[R, P]` for each dtype, so a step is ten operations
    on whole matrices however many parameters there are, and reads nothing back from the device.

    Args:
        rates: parameters `[R, ...]` by name, each with one learning rate or R of them.
        replicas: R.
        betas: decay of the first and second moments.
        eps: added to the root of the second moment.
    """

    per_replica = True

    def __init__(
        self,
        rates: Rates,
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
        self.parameters = [parameter for block in self.blocks for parameter in block.parameters]
        self.corrections = torch.zeros(2, dtype=torch.float64, device=self.blocks[0].values.device)

    def advance(self, factor: float = 1.0) -> None:
        """Count a step; the factor is divided out of the first moment's correction."""
        self.steps += 1
        first, second = (1.0 - beta**self.steps for beta in self.betas)
        self.corrections[0].fill_(first / factor if factor else math.inf)
        self.corrections[1].fill_(second)

    def update(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        """One step down the gradients of the replicas that are active; after `advance`."""
        rest = list(gradients)
        for block in self.blocks:
            own, rest = rest[: len(block.parameters)], rest[len(block.parameters) :]
            block.gradient = torch.cat([g.flatten(1) if g.dim() > 1 else g[:, None] for g in own], 1)
            active &= block.gradient.sum(1).isfinite()
        for block in self.blocks:
            block.step(self.corrections, self.betas, self.eps, active)

    def state_dict(self) -> dict[str, Any]:
        """Moments and step."""
        return {"steps": self.steps, "moments": [[block.first, block.second] for block in self.blocks]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.steps = state["steps"]
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
