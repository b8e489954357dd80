"""Arithmetic of a training step: exact where posteriors are computed, faster at the data if asked for.

Statistics, factorisations and log P - log Q can be ill-conditioned, and their errors reach every point. The
pass of the data through the drawn functions is neither, and takes most of the products. So only that pass is
ever rounded; the functions that are drawn, and how probable they are, stay what they were to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from gilib.arguments import Checked
from gilib.arithmetic import products_in, set_product_precisions
from gilib.draws import Drawn
from gilib.linalg.operation import Operation
from gilib.training.gradients.parallel import DataParallel
from gilib.validation import check_choice

PRECISIONS = ("full", "tf32", "bfloat16")
AnyDrawn = TypeVar("AnyDrawn", bound=Drawn)


@dataclass(frozen=True)
class Speed(Checked):
    """How the steps of a training are run.

    Args:
        arithmetic: of the data's pass through the drawn functions: "full", or, for float32, "tf32" (on CUDA)
            or "bfloat16". What is drawn, and log P - log Q, is always computed in full.
        replay: whether to record a step and replay it, on CUDA as a graph, on the CPU as a tape of its
            operations: faster where networks are small, and Python takes longer than the arithmetic. What a
            step makes stays in memory, results on the CPU differ by rounding, and parts of your own must do
            all that they do with tensors, not with numpy. `gilib.training.Adam` and `Bali` can be replayed.
        parallel: `DataParallel()` in a script started by torchrun: the processes share every minibatch, and
            end where one process would.

    >>> Speed(arithmetic="bfloat16").replay
    False
    """

    arithmetic: str = "full"
    replay: bool = False
    parallel: DataParallel | None = None

    def __post_init__(self) -> None:
        """Raise for an arithmetic that does not exist."""
        check_choice(self.arithmetic, PRECISIONS, "arithmetic")


def evaluated_in(drawn: AnyDrawn, precision: str, device: torch.device) -> AnyDrawn:
    """The same functions, rounded: forward and backward at the points, and nowhere else.

    Args:
        drawn: functions with their log P - log Q.
        precision: "full": as they are; "tf32": products of float32 numbers rounded to 10 bits on CUDA;
            "bfloat16": products and activations rounded to 7 bits, by autocast. Sums are kept in float32.
        device: of the points.
    """
    if precision == "full":
        return drawn
    function = drawn.function
    if precision == "tf32":

        def evaluate(x: Tensor) -> Tensor:
            with products_in("tf32"):
                return _switched_after(function(x), "tf32")

        # Backward, nodes run in the reverse order of their making: the points' pass, this, then the draw.
        return replace(drawn, function=evaluate, log_pq=_switched_after(drawn.density, "ieee"))

    def autocast(x: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            return function(x).to(x.dtype)

    return replace(drawn, function=autocast)


def _switched_after(values: Tensor, precision: str) -> Tensor:
    """The values; once the gradient has come back to them, products are of this precision."""
    result: Tensor = _SwitchPrecision.apply(values, precision)
    return result


class _SwitchPrecision(Operation):
    @staticmethod
    def forward(ctx: Any, values: Tensor, precision: str) -> Tensor:
        ctx.precision = precision
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        set_product_precisions(ctx.precision, ctx.precision)
        return gradient, None
