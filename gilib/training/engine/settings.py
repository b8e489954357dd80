"""The settings that define a training, besides network, likelihood, data and number of steps."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from gilib.arguments import Checked, Count
from gilib.config import plain
from gilib.training.engine.minibatches import Augmentation
from gilib.training.rules.base import Rule


@dataclass(frozen=True)
class Settings:
    """The arguments of `gilib.fit` on which its steps depend; `gilib.fit` explains them."""

    rule: Rule
    num_samples: int
    estimator: str
    kl_weight: Callable[[int], float] | None
    batch_size: int | None
    seed: int | Sequence[int]
    augment: Augmentation | None
    on_divergence: str
    arithmetic: str

    @property
    def freeze(self) -> bool:
        """Whether a replica that diverges is frozen while the others go on."""
        return self.on_divergence == "freeze"

    def seeds(self, offset: int) -> int | list[int]:
        """Return the seed, or the R seeds, of another random stream."""
        return self.seed + offset if isinstance(self.seed, int) else [seed + offset for seed in self.seed]

    def kl_weights(self, steps: int) -> list[float] | None:
        """Return the values of `kl_weight` at all steps; None if there is no `kl_weight`, which means 1."""
        if self.kl_weight is None:
            return None
        weights = [float(self.kl_weight(step)) for step in range(steps)]
        for step, weight in enumerate(weights):
            if not 0.0 <= weight < math.inf:
                raise ValueError(f"kl_weight must be finite and at least 0, got {weight} at step {step}")
            if not weight and self.rule.divides_by_kl_weight:
                name = type(self.rule).__name__
                raise ValueError(f"{name} divides by kl_weight, which is 0 at step {step}: keep it positive")
        return weights

    def identity(self) -> dict[str, Any]:
        """Return all settings on which a checkpoint must agree, but for the values of `kl_weight`."""
        names = {field.name for field in dataclasses.fields(self)} - {"on_divergence", "kl_weight"}
        tempered = None if self.kl_weight is None else "by its values"
        return {"kl_weight": tempered} | {name: described(getattr(self, name)) for name in sorted(names)}


@dataclass(frozen=True)
class Checkpoint(Checked):
    """Where and how often a training is saved, and when it pauses.

    Args:
        path: a file. Training resumes from it if it exists, and keeps it up to date.
        every: number of steps between saves; the last step is saved in any case.
        deadline: value of `time.monotonic()` after which the training is saved and raises
            `gilib.training.Paused`; None: never.

    >>> Checkpoint("run.pt", every=500).every
    500
    """

    path: str | os.PathLike[str]
    every: Count = 1000
    deadline: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))


def described(value: Any) -> Any:
    """Return a setting as plain data that are the same in every process; see `identified`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: described(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": name_of(type(value)), **fields}
    if isinstance(value, partial):
        parts = {"arguments": list(value.args), "keywords": dict(value.keywords)}
        return {"function": described(value.func), **{key: described(part) for key, part in parts.items()}}
    if isinstance(value, Mapping):
        return {str(key): described(part) for key, part in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [described(part) for part in value]
    if isinstance(value, Tensor | np.ndarray):
        return described(value.tolist())
    value = plain(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else name_of(value)


def identified(value: Any) -> bool:
    """Return whether `described` determines what a function computes.

    It does not for a lambda, a function inside another function, a method, or an object with a state.
    """
    if value is None or isinstance(value, bool | int | float | str | Tensor | np.ndarray | np.generic):
        return True
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return all(identified(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, partial):
        return all(identified(part) for part in (value.func, *value.args, *value.keywords.values()))
    if isinstance(value, Mapping | list | tuple):
        return all(map(identified, value.values() if isinstance(value, Mapping) else value))
    bare = inspect.unwrap(value)
    stateless = not getattr(bare, "__dict__", None) and not getattr(type(value), "__slots__", None)
    return "<" not in name_of(value) and not inspect.ismethod(value) and stateless


def name_of(value: Any) -> str:
    """Return the full name of a function or class; for any other object, that of its class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
