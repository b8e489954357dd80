"""Minibatches without replacement: the same points for all replicas, or an order of its own for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Minibatches:
    """Endless minibatches; a fresh permutation whenever fewer points are left than a batch needs.

    Args:
        x: inputs, points along axis `axis` (counted from the end). Images with channels last in memory keep
            this layout.
        y: targets `[..., N, O]`, or labels `[..., N]`.
        axis: of the points in x.
        size: points in a batch; None: all, in their order.
        seeds: one seed, or R of them for R independent orders.
    """

    def __init__(self, x: Tensor, y: Tensor, axis: int, size: int | None, seeds: int | Sequence[int]):
        """Seed the shuffling; it is done on the CPU, so orders do not depend on the device."""
        self.x, self.y, self.axis = x, y, axis
        self.num_data = x.shape[axis]
        self.size = min(size or self.num_data, self.num_data)
        self.channels_last = x.dim() == -axis == 4 and x.stride(1) == 1
        self.y_axis = points_axis(y)
        self.together = isinstance(seeds, int)
        each = [seeds] if isinstance(seeds, int) else seeds
        self.generators = [torch.Generator().manual_seed(int(seed)) for seed in each]
        self.order, self.position = torch.empty(len(each), 0, dtype=torch.long), 0

    def next(self) -> tuple[Tensor, Tensor]:
        """The next minibatch of inputs and targets."""
        if self.size == self.num_data:
            return self.x, self.y
        if self.position + self.size > self.order.shape[1]:
            permutations = [torch.randperm(self.num_data, generator=g) for g in self.generators]
            self.order, self.position = torch.stack(permutations).to(self.x.device, non_blocking=True), 0
        index = self.order[:, self.position : self.position + self.size]
        self.position += self.size
        if self.together:
            x = self.x.index_select(self.axis, index[0])  # in torch's own layout
            x = x.to(memory_format=torch.channels_last) if self.channels_last else x
            return x, self.y.index_select(self.y_axis, index[0])
        return _pick(self.x, index, self.axis), _pick(self.y, index, self.y_axis)

    def state(self) -> dict[str, Any]:
        """What the next batch depends on."""
        states = torch.stack([generator.get_state() for generator in self.generators])
        return {"shuffle": states, "order": self.order.cpu(), "position": self.position}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        for generator, own in zip(self.generators, state["shuffle"], strict=True):
            generator.set_state(own.clone())
        self.order, self.position = state["order"].to(self.x.device), state["position"]


def points_axis(y: Tensor) -> int:
    """The axis of the points in targets `[..., N, O]`, or in labels `[..., N]`, which are integers."""
    return -2 if y.is_floating_point() else -1


def _pick(values: Tensor, index: Tensor, axis: int) -> Tensor:
    """Points `index` `[R, B]` of `[R, N, ...]`, or of `[N, ...]` that all replicas share."""
    if values.dim() == -axis:
        return values[index]
    return values[torch.arange(len(index), device=values.device)[:, None], index]
