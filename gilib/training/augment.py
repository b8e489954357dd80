"""Augmentation: what is done to the inputs of every minibatch, with a random stream of its own."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Augmentation(Protocol):
    """A function of inputs, random through `generator` alone, such as `gilib.data.random_flip_and_crop`."""

    def __call__(self, x: Tensor, *, generator: torch.Generator) -> Tensor:
        """Inputs of the same shape, dtype and device as `x`, which is left as it was."""


class Augmenter:
    """Augments minibatches: with one stream, or with one for every replica.

    Args:
        function: the augmentation.
        rank: axes of inputs without replicas, `[N, ...]`.
        seeds: one seed, or R of them: replica r then sees what a network of its own would see.
        device: of the inputs.

    >>> from gilib.data import random_flip
    >>> augmenter = Augmenter(random_flip, 4, [0, 1], torch.device("cpu"))
    >>> augmenter(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([2, 5, 3, 8, 8])
    """

    def __init__(self, function: Augmentation, rank: int, seeds: int | Sequence[int], device: torch.device):
        """Seed the streams."""
        self.function, self.rank, self.together = function, rank, isinstance(seeds, int)
        each = [seeds] if isinstance(seeds, int) else seeds
        self.generators = [torch.Generator(device).manual_seed(int(seed)) for seed in each]

    def __call__(self, x: Tensor) -> Tensor:
        """Augment `[N, ...]` or `[R, N, ...]`; R streams give `[R, N, ...]` in either case."""
        if self.together:
            return self._augmented(x, self.generators[0])
        own = x.unbind(0) if x.dim() > self.rank else [x] * len(self.generators)
        return torch.stack([self._augmented(part, g) for part, g in zip(own, self.generators, strict=True)])

    def _augmented(self, x: Tensor, generator: torch.Generator) -> Tensor:
        version = x._version
        result = self.function(x, generator=generator)
        if x._version != version:
            raise ValueError(
                "augment changed its inputs in place, and they are the training data: copy first"
            )
        if not isinstance(result, Tensor) or _kind(result) != _kind(x):
            found = _kind(result) if isinstance(result, Tensor) else type(result).__name__
            raise ValueError(f"augment must return inputs like those it was given, {_kind(x)}, got {found}")
        return result

    def state(self) -> Tensor:
        """The states of the streams, one in a row."""
        return torch.stack([generator.get_state() for generator in self.generators])

    def restore(self, state: Tensor) -> None:
        """Continue from `state`."""
        for generator, own in zip(self.generators, state, strict=True):
            generator.set_state(own.clone())


def _kind(x: Tensor) -> str:
    return f"{list(x.shape)} of {x.dtype} on {x.device}"


def check_augment(augment: object) -> None:
    """Raise unless `augment` can be called as fit calls it."""
    if not callable(augment):
        raise TypeError(f"augment must be a function of inputs and generator, got {augment!r}")
    try:
        inspect.signature(augment).bind(torch.empty(0), generator=torch.Generator())
    except (TypeError, ValueError) as error:  # a function without a signature raises the latter
        raise TypeError(
            f"augment={augment!r} cannot be called as augment(x, generator=...): {error}"
        ) from None
