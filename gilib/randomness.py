"""Where standard normals come from: one generator, or one for every replica."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK = 64  # requests drawn at once on an accelerator: R small kernels per step would be most of the time
LARGEST = 1 << 21  # numbers of a block, for each replica


@dataclass
class _Prefetched:
    """Requests of one shape that are drawn already.

    Attributes:
        start: states of the generators before, `[R, bytes]`.
        values: all requests of the block.
        position: how many of them have been given.
    """

    start: Tensor
    values: Sequence[Tensor]
    position: int = 0


class ReplicaGenerators:
    """R generators in place of one: replica r draws what a network of its own would draw from seed r.

    It goes wherever a generator is taken (`draw`, `estimate`, `predict`, `base_noise`) for networks with one
    replica axis. On an accelerator noise is drawn in blocks of up to 64 requests of one shape, whose numbers
    are not those of 64 requests: there the network of its own is one with `replicas=(1,)` and
    `ReplicaGenerators([seed])`. The state knows what was drawn ahead.

    Args:
        seeds: R integers.
        device: of the generators.

    >>> generators = ReplicaGenerators([0, 1])
    >>> noise = generators.normal((5, 2, 3), torch.float32, torch.device("cpu"))
    >>> alone = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    >>> bool((noise[:, 1] == alone).all())
    True
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str | None = None):
        """Seed R generators."""
        self.generators = [torch.Generator(device or "cpu").manual_seed(int(seed)) for seed in seeds]
        if not self.generators:
            raise ValueError("ReplicaGenerators needs at least one seed")
        self.block = 1 if self.generators[0].device.type == "cpu" else BLOCK
        self._ahead: dict[tuple[tuple[int, ...], torch.dtype], _Prefetched] = {}

    def normal(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device | None) -> Tensor:
        """Standard normals of shape `[S, R, ...]`, slice r from generator r."""
        if len(shape) < 2 or shape[1] != len(self.generators):
            raise ValueError(
                f"{len(self.generators)} generators serve a network with replicas=({len(self.generators)},), "
                f"got a request of shape {list(shape)}"
            )
        if self.block == 1:
            return torch.stack(
                [self._draw(g, _replica_shape(shape), dtype, device) for g in self.generators], 1
            )
        key = (tuple(shape), dtype)
        ahead = self._ahead.get(key)
        if ahead is None or ahead.position == len(ahead.values):
            ahead = self._ahead[key] = self._drawn_ahead(shape, dtype, device)
        ahead.position += 1
        return ahead.values[ahead.position - 1]

    def _drawn_ahead(
        self, shape: Sequence[int], dtype: torch.dtype, device: torch.device | None
    ) -> _Prefetched:
        """A block of requests; its length does not depend on R."""
        own, start = _replica_shape(shape), self._states()
        length = max(1, min(self.block, LARGEST // max(1, math.prod(own))))
        drawn = [self._draw(g, (length, *own), dtype, device) for g in self.generators]
        return _Prefetched(start, torch.stack(drawn, 2).unbind(0))

    @staticmethod
    def _draw(
        generator: torch.Generator, size: tuple[int, ...], dtype: torch.dtype, device: torch.device | None
    ) -> Tensor:
        return torch.randn(size, generator=generator, dtype=dtype, device=device)

    def _states(self) -> Tensor:
        return torch.stack([generator.get_state() for generator in self.generators])

    def _set_states(self, states: Tensor) -> None:
        for generator, own in zip(self.generators, states, strict=True):
            generator.set_state(own.clone())

    def get_state(self) -> dict[str, Any]:
        """The states of all generators, `[R, bytes]`, and what of their blocks is still to be given."""
        ahead = [
            {"shape": list(shape), "dtype": dtype, "start": block.start, "position": block.position}
            for (shape, dtype), block in self._ahead.items()
            if block.position < len(block.values)
        ]
        return {"generators": self._states(), "ahead": ahead}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`: blocks are drawn again, from where they began."""
        self._ahead.clear()
        for block in state["ahead"]:
            self._set_states(block["start"])
            shape, dtype = tuple(block["shape"]), block["dtype"]
            again = self._drawn_ahead(shape, dtype, self.generators[0].device)
            self._ahead[shape, dtype] = replace(again, position=block["position"])
        self._set_states(state["generators"])


def _replica_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """What of a request `[S, R, ...]` is one replica's."""
    return shape[0], *shape[2:]


GeneratorLike = torch.Generator | ReplicaGenerators


def check_generator(source: object) -> None:
    """Raise unless random numbers can come from `source`; None stands for torch's default generator."""
    if source is not None and not isinstance(source, GeneratorLike):
        raise TypeError(
            "generator must be a torch.Generator or a gilib.randomness.ReplicaGenerators, such as "
            f"torch.Generator().manual_seed(0), got {source!r}"
        )


def standard_normal(
    shape: Sequence[int], source: GeneratorLike | None, dtype: torch.dtype, device: torch.device | None
) -> Tensor:
    """Standard normals `[S, R, ...]` from either kind of source; None: torch's default generator."""
    if isinstance(source, ReplicaGenerators):
        return source.normal(shape, dtype, device)
    check_generator(source)
    return torch.randn(tuple(shape), generator=source, dtype=dtype, device=device)


class Noise(NamedTuple):
    """Standard normals of samples: what is random once, and what is random at every point.

    Attributes:
        draw: `[S, R, P]`.
        points: `[S, R, N, Q]`.
    """

    draw: Tensor
    points: Tensor

    @property
    def zeros(self) -> Tensor:
        """The log_pq of what is not random, `[S, R]`."""
        return self.draw.new_zeros(self.draw.shape[:-1])

    def split(self, sizes: Sequence[NoiseSize]) -> list[Noise]:
        """Consecutive pieces of these sizes."""
        draws = self.draw.split_with_sizes([size.draw for size in sizes], -1)
        points = self.points.split_with_sizes([size.points for size in sizes], -1)
        return [Noise(*piece) for piece in zip(draws, points, strict=True)]


class NoiseSize(NamedTuple):
    """How many standard normals a sample takes.

    Attributes:
        draw: P, once for every sample.
        points: Q, at every point of every sample.
    """

    draw: int
    points: int = 0


def total_size(sizes: Iterable[NoiseSize]) -> NoiseSize:
    """Their sum.

    >>> total_size([NoiseSize(3), NoiseSize(1, 2)])
    NoiseSize(draw=4, points=2)
    """
    return NoiseSize(*map(sum, zip((0, 0), *sizes, strict=True)))


def noise_at(noise: Tensor, outputs: Tensor, axis: int) -> Tensor:
    """The noise of N points, if it was made for the points of `outputs`; both have them at `axis`.

    Raises:
        ValueError: if there are more or fewer points than numbers.
    """
    if noise.shape[axis] != outputs.shape[axis]:
        raise ValueError(
            f"this estimate or joint draw was made for {noise.shape[axis]} points, not for "
            f"{outputs.shape[axis]}: make one with num_points={outputs.shape[axis]}"
        )
    return noise
