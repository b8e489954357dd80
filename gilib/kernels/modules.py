"""Hyper-parameters of kernels, positive by their logarithms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gilib.arguments import Positive
from gilib.kernels.functions import KernelFunction
from gilib.posteriors.base import BuildContext

Setting = Positive | tuple[Positive, ...]


class KernelModule(nn.Module, ABC):
    """A kernel inside a layer: `module()` is the kernel with its hyper-parameters of that moment."""

    @abstractmethod
    def forward(self) -> KernelFunction:
        """The kernel; gradients of its values reach the parameters."""


@dataclass(frozen=True)
class Start:
    """Where a hyper-parameter starts.

    Attributes:
        value: one number, or one for each entry.
        size: how many entries it has.
    """

    value: Setting
    size: int = 1

    def logs(self, name: str, context: BuildContext) -> Tensor:
        """Their logarithms, `[R, size]`."""
        values = self.value if isinstance(self.value, tuple) else (self.value,) * self.size
        if len(values) != self.size:
            raise ValueError(
                f"{name} must be one number or {self.size}, one for each input, got {len(values)}"
            )
        start = context.full((self.size,), 0.0)
        return start + torch.tensor([math.log(value) for value in values], dtype=torch.float64).to(start)


class BasicKernel(KernelModule):
    """Hyper-parameters by name, and the function made from them.

    Attributes:
        log: logarithms, `[R, size]` each.
    """

    def __init__(
        self, starts: Mapping[str, Start], function: Callable[..., KernelFunction], context: BuildContext
    ):
        """Create the parameters."""
        super().__init__()
        self.function = function
        self.log = nn.ParameterDict(
            {name: nn.Parameter(start.logs(name, context)) for name, start in starts.items()}
        )

    def forward(self) -> KernelFunction:
        """In float64, with an axis for points."""
        return self.function(**{name: log.double().exp()[..., None, :] for name, log in self.log.items()})


class CombinedKernel(KernelModule):
    """Several kernels as one.

    Attributes:
        parts: their modules.
    """

    def __init__(
        self,
        parts: Sequence[KernelModule],
        combine: Callable[[tuple[KernelFunction, ...]], KernelFunction],
    ):
        """Collect the parts."""
        super().__init__()
        self.parts, self.combine = nn.ModuleList(parts), combine

    def forward(self) -> KernelFunction:
        """Of the parts' functions."""
        return self.combine(tuple(part() for part in self.parts))
