"""What defines a training, beside network, likelihood, data and number of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from gilib.training.augment import Augmentation, described
from gilib.training.optimiser import Rate


@dataclass(frozen=True)
class Settings:
    """The arguments of `gilib.fit` on which its steps depend; their meaning is explained there."""

    batch_size: int | None
    num_samples: int
    lr: Rate
    lr_groups: Mapping[str, Rate]
    seed: int | Sequence[int]
    estimator: str
    kl_weight: Callable[[int], float] | None
    on_divergence: str
    augment: Augmentation | None
    arithmetic: str

    @property
    def freeze(self) -> bool:
        """Whether a replica that breaks down is frozen."""
        return self.on_divergence == "freeze"

    def seeds(self, offset: int) -> int | list[int]:
        """The seed, or R of them, of another stream."""
        return self.seed + offset if isinstance(self.seed, int) else [seed + offset for seed in self.seed]

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with; options not used leave no trace, so that older files serve."""
        names = ("batch_size", "num_samples", "lr", "seed", "estimator")
        identity = {name: getattr(self, name) for name in names} | {"lr_groups": dict(self.lr_groups)}
        if self.augment is not None:
            identity["augment"] = described(self.augment)
        if is_dataclass(self.kl_weight):  # other functions do not tell what they compute
            identity["kl_weight"] = repr(self.kl_weight)
        if self.arithmetic != "full":
            identity["arithmetic"] = self.arithmetic
        return identity


@dataclass(frozen=True)
class Schedule:
    """How many steps a training has, when it is interrupted, and where it is kept."""

    steps: int
    path: Path | None
    checkpoint_every: int
    deadline: float | None

    def outline(self) -> tuple[int, int, bool, bool]:
        """What processes must agree upon to stop and to write at the same steps."""
        return self.steps, self.checkpoint_every, self.path is None, self.deadline is None
