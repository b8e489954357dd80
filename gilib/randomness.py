"""Where standard normals come from: one generator, or one for every replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = (
    64  # requests drawn at once on an accelerator, where R small kernels per step would be most of the time
)


class ReplicaGenerators:
    """R generators in place of one: replica r draws what a network of its own would draw from seed r.

    It goes wherever a generator is taken (`draw`, `estimate`, `predict`, `base_noise`) for networks with one
    replica axis. On an accelerator noise is drawn in blocks.

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
        self._blocks: dict[tuple[tuple[int, ...], torch.dtype], list[Tensor]] = {}

    def normal(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device | None) -> Tensor:
        """Standard normals of shape `[S, R, ...]`, slice r from generator r."""
        if len(shape) < 2 or shape[1] != len(self.generators):
            raise ValueError(
                f"{len(self.generators)} generators serve a network with replicas=({len(self.generators)},), "
                f"got a request of shape {list(shape)}"
            )
        size = (shape[0], *shape[2:])
        if self.block == 1:
            return torch.stack([self._draw(g, size, dtype, device) for g in self.generators], 1)
        waiting = self._blocks.setdefault((tuple(shape), dtype), [])
        if not waiting:
            drawn = [self._draw(g, (self.block, *size), dtype, device) for g in self.generators]
            waiting.extend(reversed(torch.stack(drawn, 2).unbind(0)))
        return waiting.pop()

    @staticmethod
    def _draw(
        generator: torch.Generator, size: tuple[int, ...], dtype: torch.dtype, device: torch.device | None
    ) -> Tensor:
        return torch.randn(size, generator=generator, dtype=dtype, device=device)

    def get_state(self) -> Tensor:
        """The states of all generators, `[R, bytes]`; what was drawn ahead is given up."""
        self._blocks.clear()
        return torch.stack([generator.get_state() for generator in self.generators])

    def set_state(self, state: Tensor) -> None:
        """Continue from `get_state`."""
        self._blocks.clear()
        for generator, own in zip(self.generators, state, strict=True):
            generator.set_state(own.clone())


Source = torch.Generator | ReplicaGenerators


def standard_normal(
    shape: Sequence[int], source: Source | None, dtype: torch.dtype, device: torch.device | None
) -> Tensor:
    """Standard normals `[S, R, ...]` from either kind of source; None: torch's default generator."""
    if isinstance(source, ReplicaGenerators):
        return source.normal(shape, dtype, device)
    return torch.randn(tuple(shape), generator=source, dtype=dtype, device=device)


class Noise(NamedTuple):
    """Standard normals of an estimate: what is random once, and what is random at every point.

    Attributes:
        draw: `[S, R, P]`.
        points: `[S, R, N, Q]`.
    """

    draw: Tensor
    points: Tensor

    def split(self, sizes: Sequence[NoiseSize]) -> list[Noise]:
        """Consecutive pieces of these sizes."""
        pieces = [self.draw.split([size.draw for size in sizes], -1)]
        pieces.append(self.points.split([size.points for size in sizes], -1))
        return [Noise(*piece) for piece in zip(*pieces, strict=True)]


class NoiseSize(NamedTuple):
    """How many standard normals an estimate takes.

    Attributes:
        draw: P, once for every sample.
        points: Q, at every point of every sample.
    """

    draw: int
    points: int = 0


def noise_at(noise: Tensor, outputs: Tensor, axis: int) -> Tensor:
    """The noise of N points, if it was made for the points of `outputs`; both have them at `axis`.

    Raises:
        ValueError: if there are more or fewer points than numbers.
    """
    if noise.shape[axis] != outputs.shape[axis]:
        raise ValueError(
            f"this estimate was made for {noise.shape[axis]} points, not for {outputs.shape[axis]}: "
            f"call estimate(num_samples, num_points={outputs.shape[axis]})"
        )
    return noise
