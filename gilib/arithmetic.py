"""Exact products of float32 numbers, where torch makes that a setting of the process and not an argument.

On CUDA products are exact ("ieee") or rounded to ten bits ("tf32"); torch's own default rounds convolutions.
`torch.autocast` rounds all products to seven bits. Whatever draws or evaluates functions does so within
`exact_products`, in training and outside of it: a bound that is measured is the bound that was trained.
Training computes gradients within it, too; a gradient that you take yourself, wherever torch is set to.

The setting is the process's. Threads that draw at the same time set it for each other: a program that does so
on a GPU sets "ieee" once, before they start, with `set_product_precisions("ieee", "ieee")`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

CUDNN: Any = torch.backends.cudnn


def product_precisions() -> tuple[str, str]:
    """How CUDA multiplies matrices and how it convolves: "none" is torch's default."""
    return torch.backends.cuda.matmul.fp32_precision, CUDNN.conv.fp32_precision


def set_product_precisions(matrices: str, convolutions: str) -> None:
    """For the whole process."""
    torch.backends.cuda.matmul.fp32_precision = matrices
    CUDNN.conv.fp32_precision = convolutions


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Within it CUDA computes with float32 numbers as asked for, outside of `torch.autocast`; then as before.

    >>> with products_in("tf32"):
    ...     product_precisions()
    ('tf32', 'tf32')
    """
    before = product_precisions()
    with ExitStack() as inside:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                inside.enter_context(torch.autocast(device, enabled=False))
        set_product_precisions(precision, precision)
        try:
            yield
        finally:
            set_product_precisions(*before)


def exact_products() -> AbstractContextManager[None]:
    """Within it products are those of float32 numbers as IEEE has them; free where nothing would round them.

    Compiled code keeps the setting under which it runs.
    """
    if torch.compiler.is_compiling():
        return nullcontext()
    rounded = torch.cuda.is_initialized() and product_precisions() != ("ieee", "ieee")
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    return products_in("ieee") if rounded or autocast else nullcontext()
