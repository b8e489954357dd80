"""Minibatches and their augmentation: which data a step sees."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gilib.randomness import set_states, states_of

Seeds = int | Sequence[int]  # one, or one for each replica
Augmentation = Callable[..., Tensor]  # of inputs and a generator, given by name; all randomness is from that


class Minibatches:
    """Draws minibatches without end, without replacement within each epoch.

    A new permutation starts whenever fewer points are left than a batch of `size` needs; None: all points, in
    their own order. The axes are those of the points, from the end; R seeds give R independent orders.
    """

    def __init__(self, x: Tensor, y: Tensor, axis: int, y_axis: int, size: int | None, seeds: Seeds):
        self.x, self.y, self.axis, self.y_axis = x, y, axis, y_axis
        self.num_data = x.shape[axis]
        self.size = min(size or self.num_data, self.num_data)
        self.channels_last = x.dim() == -axis == 4 and x.stride(1) == 1
        self.shared = isinstance(seeds, int)
        each = [seeds] if isinstance(seeds, int) else seeds
        self.generators = [torch.Generator().manual_seed(int(seed)) for seed in each]
        self.order, self.position = torch.empty(len(each), 0, dtype=torch.long), 0

    def next(self) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of the next minibatch."""
        if self.size == self.num_data:
            return self.x, self.y
        if self.position + self.size > self.order.shape[1]:
            permutations = [torch.randperm(self.num_data, generator=g) for g in self.generators]
            self.order, self.position = torch.stack(permutations).to(self.x.device, non_blocking=True), 0
        index = self.order[:, self.position : self.position + self.size]
        self.position += self.size
        if self.shared:
            x = self.x.index_select(self.axis, index[0])  # which loses the channels-last layout
            x = x.to(memory_format=torch.channels_last) if self.channels_last else x
            return x, self.y.index_select(self.y_axis, index[0])
        return _pick(self.x, index, self.axis), _pick(self.y, index, self.y_axis)

    def state(self) -> dict[str, Any]:
        """Return all that the next batch depends on."""
        shuffle = states_of(self.generators)
        return {"shuffle": shuffle, "order": self.order.cpu(), "position": self.position}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        set_states(self.generators, state["shuffle"])
        self.order, self.position = state["order"].to(self.x.device), state["position"]


def _pick(values: Tensor, index: Tensor, axis: int) -> Tensor:
    """Select points `index`, `[R, B]`, from `[R, N, ...]`, or from `[N, ...]` that replicas share."""
    if values.dim() == -axis:
        return values[index]
    return values[torch.arange(len(index), device=values.device)[:, None], index]


class Augmenter:
    """Augments minibatches; inputs without replicas have `rank` axes, R seeds give R random streams."""

    def __init__(self, function: Augmentation, rank: int, seeds: Seeds, device: torch.device):
        self.function, self.rank, self.shared = function, rank, isinstance(seeds, int)
        each = [seeds] if isinstance(seeds, int) else seeds
        self.generators = [torch.Generator(device).manual_seed(int(seed)) for seed in each]

    def __call__(self, x: Tensor) -> Tensor:
        """Augment `[N, ...]` or `[R, N, ...]`; with R streams, the result is `[R, N, ...]` in either case."""
        if self.shared:
            return self._augmented(x, self.generators[0])
        own = x.unbind(0) if x.dim() > self.rank else [x] * len(self.generators)
        return torch.stack([self._augmented(part, g) for part, g in zip(own, self.generators, strict=True)])

    def _augmented(self, x: Tensor, generator: torch.Generator) -> Tensor:
        version = x._version
        result = self.function(x, generator=generator)
        if x._version != version:
            raise ValueError("augment changed its inputs in place, which are the training data: copy first")
        if not isinstance(result, Tensor) or _kind(result) != _kind(x):
            found = _kind(result) if isinstance(result, Tensor) else type(result).__name__
            raise ValueError(f"augment must return inputs like those it was given, {_kind(x)}, got {found}")
        return result

    def state(self) -> Tensor:
        """Return all that later augmentations depend on."""
        return states_of(self.generators)

    def restore(self, state: Tensor) -> None:
        """Continue from what `state` returned."""
        set_states(self.generators, state)


def _kind(x: Tensor) -> str:
    return f"{list(x.shape)} of {x.dtype} on {x.device}"


def check_augment(augment: object) -> None:
    """Raise unless `augment` can be called as `augment(x, generator=...)`."""
    if not callable(augment):
        raise TypeError(f"augment must be a function of inputs and generator, got {augment!r}")
    try:
        inspect.signature(augment).bind(torch.empty(0), generator=torch.Generator())
    except (TypeError, ValueError) as error:  # a function without a signature raises the latter
        raise TypeError(
            f"augment={augment!r} cannot be called as augment(x, generator=...): {error}"
        ) from None
