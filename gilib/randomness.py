"""Sources of standard normals: one generator, or one for every replica."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK = 64  # requests drawn at once on an accelerator, where R small kernels would dominate a step
LARGEST = 1 << 21  # most numbers of a block, for each replica


def states_of(generators: Sequence[torch.Generator]) -> Tensor:
    """Return the states of generators, one in each row."""
    return torch.stack([generator.get_state() for generator in generators])


def set_states(generators: Sequence[torch.Generator], states: Tensor) -> None:
    """Set the states of generators to the rows of `states`."""
    for generator, own in zip(generators, states, strict=True):
        generator.set_state(own.clone())


@dataclass
class _Prefetched:
    """A block of requests of one shape, drawn in advance."""

    start: Tensor  # states of the generators before the block, [R, bytes]
    values: Sequence[Tensor]  # numbers for all requests
    position: int = 0  # number of requests that have been served


class ReplicaGenerators:
    """R generators, so that each replica draws the same numbers as a network trained alone with its seed.

    Pass it instead of a generator (to `draw`, `estimate`, `predict`, `base_noise`) for networks with one
    replica axis. On an accelerator noise is drawn in blocks of up to 64 requests of one shape, which gives
    other numbers: there the equivalent network alone has `replicas=(1,)` and `ReplicaGenerators([seed])`.

    Args:
        seeds: R integers.
        device: device of the generators.

    >>> generators = ReplicaGenerators([0, 1])
    >>> noise = generators.normal((5, 2, 3), torch.float32, torch.device("cpu"))
    >>> alone = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    >>> bool((noise[:, 1] == alone).all())
    True
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str | None = None):
        self.generators = [torch.Generator(device or "cpu").manual_seed(int(seed)) for seed in seeds]
        if not self.generators:
            raise ValueError("ReplicaGenerators needs at least one seed")
        self.block = 1 if self.generators[0].device.type == "cpu" else BLOCK
        self._ahead: dict[tuple[tuple[int, ...], torch.dtype], _Prefetched] = {}

    def normal(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device | None) -> Tensor:
        """Draw standard normals `[S, R, ...]`, slice r from generator r."""
        if len(shape) < 2 or shape[1] != len(self.generators):
            raise ValueError(
                f"{len(self.generators)} generators serve a network with replicas=({len(self.generators)},), "
                f"got a request of shape {list(shape)}"
            )
        if self.block == 1:
            return torch.stack(self._draws(_replica_shape(shape), dtype, device), 1)
        key = (tuple(shape), dtype)
        ahead = self._ahead.get(key)
        if ahead is None or ahead.position == len(ahead.values):
            ahead = self._ahead[key] = self._drawn_ahead(shape, dtype, device)
        ahead.position += 1
        return ahead.values[ahead.position - 1]

    def _drawn_ahead(
        self, shape: Sequence[int], dtype: torch.dtype, device: torch.device | None
    ) -> _Prefetched:
        """Draw a block of requests, whose length does not depend on R."""
        own, start = _replica_shape(shape), states_of(self.generators)
        length = max(1, min(self.block, LARGEST // max(1, math.prod(own))))
        drawn = self._draws((length, *own), dtype, device)
        return _Prefetched(start, torch.stack(drawn, 2).unbind(0))

    def _draws(self, size: Sequence[int], dtype: torch.dtype, device: torch.device | None) -> list[Tensor]:
        return [torch.randn(size, generator=g, dtype=dtype, device=device) for g in self.generators]

    def get_state(self) -> dict[str, Any]:
        """Return the states of all generators, `[R, bytes]`, and the unfinished blocks."""
        ahead = [
            {"shape": list(shape), "dtype": dtype, "start": block.start, "position": block.position}
            for (shape, dtype), block in self._ahead.items()
            if block.position < len(block.values)
        ]
        return {"generators": states_of(self.generators), "ahead": ahead}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `get_state`; unfinished blocks are drawn again from their start."""
        self._ahead.clear()
        for block in state["ahead"]:
            set_states(self.generators, block["start"])
            shape, dtype = tuple(block["shape"]), block["dtype"]
            again = self._drawn_ahead(shape, dtype, self.generators[0].device)
            self._ahead[shape, dtype] = replace(again, position=block["position"])
        set_states(self.generators, state["generators"])


def _replica_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of one replica's part of a request `[S, R, ...]`."""
    return shape[0], *shape[2:]


GeneratorLike = torch.Generator | ReplicaGenerators


def check_generator(source: object) -> None:
    """Raise an error unless `source` is a generator, or None for torch's default generator."""
    if source is not None and not isinstance(source, GeneratorLike):
        raise TypeError(
            "generator must be a torch.Generator or a gilib.randomness.ReplicaGenerators, such as "
            f"torch.Generator().manual_seed(0), got {source!r}"
        )


def standard_normal(
    shape: Sequence[int], source: GeneratorLike | None, dtype: torch.dtype, device: torch.device | None
) -> Tensor:
    """Draw standard normals `[S, R, ...]` from either kind of source; None is torch's default generator."""
    if isinstance(source, ReplicaGenerators):
        return source.normal(shape, dtype, device)
    check_generator(source)
    return torch.randn(tuple(shape), generator=source, dtype=dtype, device=device)


class Noise(NamedTuple):
    """The standard normals of samples: what is random once, and what is random at every point.

    Attributes:
        draw: normals for each sample, `[S, R, P]`.
        points: normals for every point of each sample, `[S, R, N, Q]`.
    """

    draw: Tensor
    points: Tensor

    @property
    def zeros(self) -> Tensor:
        """The log_pq of what is not random, `[S, R]`."""
        return self.draw.new_zeros(self.draw.shape[:-1])

    def split(self, sizes: Sequence[NoiseSize]) -> list[Noise]:
        """Split into consecutive pieces of these sizes."""
        draws = self.draw.split_with_sizes([size.draw for size in sizes], -1)
        points = self.points.split_with_sizes([size.points for size in sizes], -1)
        return [Noise(*piece) for piece in zip(draws, points, strict=True)]


class NoiseSize(NamedTuple):
    """The number of standard normals that a sample needs.

    Attributes:
        draw: P, for each sample.
        points: Q, for every point of each sample.
    """

    draw: int
    points: int = 0


def total_size(sizes: Iterable[NoiseSize]) -> NoiseSize:
    """Return the sum of noise sizes."""
    return NoiseSize(*map(sum, zip((0, 0), *sizes, strict=True)))


def noise_at(noise: Tensor, outputs: Tensor, axis: int) -> Tensor:
    """Return `noise` if it has as many points along `axis` as `outputs`.

    Raises:
        ValueError: if the numbers of points differ.
    """
    if noise.shape[axis] != outputs.shape[axis]:
        raise ValueError(
            f"this estimate or joint draw was made for {noise.shape[axis]} points, not for "
            f"{outputs.shape[axis]}: make one with num_points={outputs.shape[axis]}"
        )
    return noise
