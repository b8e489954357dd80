"""Arithmetic of a training step: always exact for posteriors, and faster at the data if asked for.

Statistics, factorisations and log P - log Q can be ill-conditioned, so they stay the same to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import torch
from torch import Tensor

from gilib.arguments import Checked, one_of
from gilib.arithmetic import products_in, set_product_precisions
from gilib.draws import Drawn
from gilib.linalg.operation import Operation
from gilib.training.gradients.parallel import DataParallel

PRECISIONS = ("full", "tf32", "bfloat16")
AnyDrawn = TypeVar("AnyDrawn", bound=Drawn)


@dataclass(frozen=True)
class Speed(Checked):
    """How the steps of a training are executed.

    Args:
        arithmetic: arithmetic of the evaluation of drawn functions at the data: "full", or, for float32,
            "tf32" (on CUDA) or "bfloat16". Drawing, and log P - log Q, are always computed in full.
        replay: whether to record a step and replay it, which is faster for small networks, where Python takes
            longer than the arithmetic; the training is the same. All intermediate results stay in memory.
            Parts of your own must do all their work with tensors, not with numpy. None: on a CPU, if the rule
            can be recorded, all parts are of gilib or torch, and these results take at most 128 MiB.
        parallel: `DataParallel()` in a script started by torchrun. The processes share every minibatch, and
            reach the same state as a single process would.

    >>> Speed(arithmetic="bfloat16").replay is None
    True
    """

    arithmetic: Annotated[str, one_of(PRECISIONS)] = "full"
    replay: bool | None = None
    parallel: DataParallel | None = None


def evaluated_in(drawn: AnyDrawn, precision: str, device: torch.device) -> AnyDrawn:
    """Return the same functions, but with rounded arithmetic at the points, forward and backward.

    "full" changes nothing; "tf32" rounds the factors of float32 products to 10 bits, on CUDA; "bfloat16"
    rounds products and activations to 7 bits, by autocast. Sums stay in float32.
    """
    if precision == "full":
        return drawn
    function = drawn.function
    if precision == "tf32":

        def evaluate(x: Tensor) -> Tensor:
            with products_in("tf32"):
                return _SwitchPrecision.apply(function(x), "tf32")

        # The backward pass visits nodes in reverse order of creation: first the points, in tf32, then this
        # switch, then the draw, in full precision.
        return replace(drawn, function=evaluate, log_pq=_SwitchPrecision.apply(drawn.density, "ieee"))

    def autocast(x: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            return function(x).to(x.dtype)

    return replace(drawn, function=autocast)


class _SwitchPrecision(Operation):
    """Returns its values; the backward pass that reaches them sets the precision of all later products."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, precision: str) -> Tensor:
        ctx.precision = precision
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # The setting is global and outlives this pass: `Run` restores it after every step.
        set_product_precisions(ctx.precision, ctx.precision)
        return gradient, None
