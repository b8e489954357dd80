"""Modules that hold the hyper-parameters of kernels, as logarithms so that they stay positive."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from gilib.arguments import Scale, check_annotated
from gilib.kernels.functions import KernelFunction
from gilib.posteriors.base import BuildContext


def check_setting(value: Any, name: str) -> None:
    """Check that a value is a number in the range of float32, or a tuple of these."""
    check_annotated(value, Scale | tuple[Scale, ...], name)
    if not (isinstance(value, Real) or (isinstance(value, tuple) and value)):
        raise TypeError(f"{name} must be a number, or a tuple with one for each input, got {value!r}")


Setting = Annotated[float | tuple[float, ...], check_setting]


class KernelModule(nn.Module, ABC):
    """A kernel inside a layer; calling it returns the kernel with the current hyper-parameters."""

    @abstractmethod
    def forward(self) -> KernelFunction:
        """Return the kernel; gradients of its values reach the parameters."""


@dataclass(frozen=True)
class Start:
    """The initial value of a hyper-parameter."""

    value: Setting  # one number for all entries, or a tuple with one for each
    size: int = 1  # number of entries

    def logs(self, name: str, context: BuildContext) -> Tensor:
        """Return the logarithms of the entries, `[R, size]`."""
        values = self.value if isinstance(self.value, tuple) else (self.value,) * self.size
        if len(values) != self.size:
            raise ValueError(
                f"{name} must be one number or {self.size}, one for each input, got {len(values)}"
            )
        start = context.full((self.size,), 0.0)
        return start + torch.tensor([math.log(value) for value in values], dtype=torch.float64).to(start)


class BasicKernel(KernelModule):
    """A kernel with hyper-parameters of its own.

    Args:
        starts: initial values of the hyper-parameters, by name; `log` holds their logarithms, `[R, size]`.
        function: makes the kernel from the hyper-parameters, which it takes by name.
        context: replicas, dtype and device of the parameters.
        log_lengthscale_sd: s of `log_prior`; None: the lengthscales have no prior.
    """

    def __init__(
        self,
        starts: Mapping[str, Start],
        function: Callable[..., KernelFunction],
        context: BuildContext,
        log_lengthscale_sd: float | None = None,
    ):
        super().__init__()
        self.function, self.log_lengthscale_sd = function, log_lengthscale_sd
        logs = {name: nn.Parameter(start.logs(name, context)) for name, start in starts.items()}
        self.log = nn.ParameterDict(logs)

    def log_prior(self) -> Tensor:
        """Return -½ Σ_d (log ℓ_d - m)² / s², with m the mean of the log ℓ_d, `[R]`.

        This is the log density under log ℓ_d ~ N(c, s²), up to a constant, with c integrated out.
        """
        if self.log_lengthscale_sd is None:
            raise ValueError("the lengthscales of this kernel have no prior: give it log_lengthscale_sd")
        logs = self.log["lengthscale"].double()
        return -0.5 * ((logs - logs.mean(-1, keepdim=True)) / self.log_lengthscale_sd).square().sum(-1)

    def forward(self) -> KernelFunction:
        return self.function(**{name: log.double().exp()[..., None, :] for name, log in self.log.items()})


class CombinedKernel(KernelModule):
    """Several kernels combined into one by `combine`, a function of a tuple of kernels."""

    def __init__(
        self, parts: Sequence[KernelModule], combine: Callable[[tuple[KernelFunction, ...]], KernelFunction]
    ):
        super().__init__()
        self.parts, self.combine = nn.ModuleList(parts), combine

    def forward(self) -> KernelFunction:
        return self.combine(tuple(part() for part in self.parts))


def kernels_with_prior(net: nn.Module) -> list[BasicKernel]:
    """Return the kernels in a network whose lengthscales have a prior."""
    found = (module for module in net.modules() if isinstance(module, BasicKernel))
    return [kernel for kernel in found if kernel.log_lengthscale_sd is not None]
