"""Arithmetic of a training step: exact where posteriors are computed, faster at the data if asked for.

Statistics, factorisations and log P - log Q can be ill-conditioned, and their errors reach every point. The
pass of the data through the drawn functions is neither, and takes most of the products. So only that pass is
ever rounded; the functions that are drawn, and how probable they are, stay what they were to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from gilib.draws import Draw, LocalReparameterisation

PRECISIONS = ("full", "tf32", "bfloat16")
CUDNN: Any = torch.backends.cudnn
Drawn = TypeVar("Drawn", Draw, LocalReparameterisation)


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Within it CUDA multiplies matrices and convolves in "ieee" float32, or in "tf32"; then as before.

    torch's own default is TF32 for convolutions. The setting is the process's, and does nothing on a CPU.

    >>> with products("tf32"):
    ...     torch.backends.cuda.matmul.fp32_precision
    'tf32'
    """
    before = _get()
    try:
        _set(precision, precision)
        yield
    finally:
        _set(*before)


def _get() -> tuple[str, str]:
    return torch.backends.cuda.matmul.fp32_precision, CUDNN.conv.fp32_precision


def _set(matrices: str, convolutions: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = matrices
    CUDNN.conv.fp32_precision = convolutions


def evaluated_in(drawn: Drawn, precision: str, device: torch.device) -> Drawn:
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
            with products("tf32"):
                return _then(function(x), "tf32")

        # Backward, nodes run in the reverse order of their making: the points' pass, this, then the draw.
        return replace(drawn, function=evaluate, log_pq=_then(drawn.density, "ieee"))

    def autocast(x: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            return function(x).to(x.dtype)

    return replace(drawn, function=autocast)


def _then(values: Tensor, precision: str) -> Tensor:
    """The values; once the gradient has come back to them, products are of this precision."""
    result: Tensor = _Switch.apply(values, precision)
    return result


class _Switch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, precision: str) -> Tensor:
        ctx.precision = precision
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        _set(ctx.precision, ctx.precision)
        return gradient, None
