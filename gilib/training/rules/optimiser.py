"""Two kinds of Adam: torch's for one network, and a batched one for many replicas with rates of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Rate = float | Sequence[float]
Rates = Mapping[str, tuple[nn.Parameter, Rate]]


class NetworkAdam:
    """torch's Adam, fused, with one parameter group for each rate, which is a tensor."""

    per_replica = False  # whether every replica moves by itself, so that one can be left out

    def __init__(
        self,
        rates: Rates,
        device: torch.device,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        cuda = device.type == "cuda"
        self.kernels = {"foreach": False, "fused": True, "capturable": cuda}
        self.rates = sorted({rate for _, rate in rates.values() if not isinstance(rate, Sequence)})
        dtype = torch.float64 if device.type == "cpu" else torch.float32  # in which its kernel reads rates
        groups: list[dict[str, Any]] = [
            {
                "params": [p for p, own in rates.values() if own == rate],
                "lr": torch.full((), rate, dtype=dtype, device=device),
            }
            for rate in self.rates
        ]
        self.adam = torch.optim.Adam(groups, betas=betas, eps=eps, **self.kernels)
        self.parameters = [p for group in self.adam.param_groups for p in group["params"]]

    def advance(self, factor: float = 1.0) -> None:
        """Set the factor of the learning rates: the host's work, never recorded; `update` counts the step."""
        for group, rate in zip(self.adam.param_groups, self.rates, strict=True):
            group["lr"].fill_(factor * rate)

    def update(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        """Move the parameters against their gradients; call it after `advance`.

        The kernel skips the step once a bound was not finite: what caused it can still be examined.
        """
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient.stride() != parameter.stride():  # which the kernel does not take
                gradient = torch.empty_like(parameter).copy_(gradient)
            parameter.grad = gradient
        self.adam.found_inf = (~active.all()).float()  # type: ignore[attr-defined]
        self.adam.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of torch's optimiser."""
        return self.adam.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, with the kernels and learning rates of this device."""
        own = [self.kernels | {"lr": group["lr"]} for group in self.adam.param_groups]
        groups = [group | here for group, here in zip(state["param_groups"], own, strict=True)]
        self.adam.load_state_dict({**state, "param_groups": groups})


class ReplicaAdam:
    """Adam (Kingma & Ba, 2015) for R networks at once, which freezes those that diverge.

    For each dtype, the parameters `[R, ...]` become views of one matrix `[R, P]`. So a step takes ten
    operations, however many parameters there are, and reads nothing back from the device.

    Args:
        rates: parameters `[R, ...]` by name, each with one learning rate or R of them.
        replicas: R.
        betas: decay of the first and second moments.
        eps: added to the root of the second moment.
    """

    per_replica = True

    def __init__(
        self, rates: Rates, replicas: int, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ):
        self.betas, self.eps, self.steps = betas, eps, 0
        by_dtype: dict[torch.dtype, list[tuple[nn.Parameter, Rate]]] = {}
        for parameter, rate in rates.values():
            by_dtype.setdefault(parameter.dtype, []).append((parameter, rate))
        self.blocks = [_Block(members, replicas) for members in by_dtype.values()]
        self.parameters = [parameter for block in self.blocks for parameter in block.parameters]
        self.corrections = torch.zeros(2, dtype=torch.float64, device=self.blocks[0].values.device)

    def advance(self, factor: float = 1.0) -> None:
        """Advance the step counter, and compute the bias corrections; the first one includes the factor."""
        self.steps += 1
        first, second = (1.0 - beta**self.steps for beta in self.betas)
        # Dividing by infinity makes a step of length zero, without a number that the device must branch on.
        self.corrections[0].fill_(first / factor if factor else math.inf)
        self.corrections[1].fill_(second)

    def update(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        """Move the parameters of active replicas against their gradients; call it after `advance`.

        Args:
            gradients: one gradient for each parameter, of the same shape.
            active: `[R]`; entries of replicas whose gradient is not finite are set to False in place.
        """
        rest = list(gradients)
        for block in self.blocks:
            own, rest = rest[: len(block.parameters)], rest[len(block.parameters) :]
            block.gradient = torch.cat([g.flatten(1) if g.dim() > 1 else g[:, None] for g in own], 1)
            active &= block.gradient.sum(1).isfinite()  # before any block moves: a replica moves whole
        for block in self.blocks:
            block.step(self.corrections, self.betas, self.eps, active)

    def state_dict(self) -> dict[str, Any]:
        """Return moments and step."""
        return {"steps": self.steps, "moments": [[block.first, block.second] for block in self.blocks]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.steps = state["steps"]
        for block, (first, second) in zip(self.blocks, state["moments"], strict=True):
            block.first.copy_(first)
            block.second.copy_(second)


class _Block:
    """The parameters of one dtype, as columns of one matrix."""

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
