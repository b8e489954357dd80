"""Hyper-parameters of kernels, positive by their logarithms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gilib.arguments import Scale
from gilib.kernels.functions import KernelFunction
from gilib.posteriors.base import BuildContext

Setting = Scale | tuple[Scale, ...]


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
        self,
        starts: Mapping[str, Start],
        function: Callable[..., KernelFunction],
        context: BuildContext,
        log_lengthscale_sd: float | None = None,
    ):
        """Create the parameters."""
        super().__init__()
        self.function, self.log_lengthscale_sd = function, log_lengthscale_sd
        logs = {name: nn.Parameter(start.logs(name, context)) for name, start in starts.items()}
        self.log = nn.ParameterDict(logs)

    def log_prior(self) -> Tensor:
        """-½ Σ_d (log ℓ_d - m)² / s², m the mean of the log ℓ_d and s their deviation, `[R]`.

        It is what is left of log ℓ_d ~ N(c, s²), independent given c, where c may be anything: integrated
        over a flat c, exp(-½ Σ_d (log ℓ_d - c)² / s²) is this, but for a constant.
        """
        if self.log_lengthscale_sd is None:
            raise ValueError("the lengthscales of this kernel have no prior: give it log_lengthscale_sd")
        logs = self.log["lengthscale"].double()
        return -0.5 * ((logs - logs.mean(-1, keepdim=True)) / self.log_lengthscale_sd).square().sum(-1)

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


def kernels_with_prior(net: nn.Module) -> list[BasicKernel]:
    """The kernels of a network whose lengthscales have a prior."""
    found = (module for module in net.modules() if isinstance(module, BasicKernel))
    return [kernel for kernel in found if kernel.log_lengthscale_sd is not None]
