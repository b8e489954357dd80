"""Exact products of float32 numbers, which torch controls by a setting of the process, not by an argument.

On CUDA, products are exact ("ieee") or rounded to ten bits ("tf32"); by default torch rounds convolutions.
`torch.autocast` rounds all products to seven bits. gilib draws, evaluates and trains functions within
`exact_products`, so that a measured bound equals the trained one. Gradients that you compute yourself follow
torch's setting.

Threads change the process's setting for each other: a program that draws in several threads on a GPU should
call `set_product_precisions("ieee", "ieee")` once, before they start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

CUDNN: Any = torch.backends.cudnn


def product_precisions() -> tuple[str, str]:
    """Return the precisions of CUDA's matrix products and convolutions; "none" is torch's default."""
    return torch.backends.cuda.matmul.fp32_precision, CUDNN.conv.fp32_precision


def set_product_precisions(matrices: str, convolutions: str) -> None:
    """Set the precisions of CUDA's matrix products and convolutions for the process."""
    torch.backends.cuda.matmul.fp32_precision = matrices
    CUDNN.conv.fp32_precision = convolutions


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Set CUDA's float32 precision, and switch off `torch.autocast`, within this context.

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
    """Compute exact float32 products within this context, which costs nothing if products are exact already.

    In compiled code it has no effect: the caller's setting applies.
    """
    if torch.compiler.is_compiling():
        return nullcontext()
    rounded = torch.cuda.is_initialized() and product_precisions() != ("ieee", "ieee")
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    return products_in("ieee") if rounded or autocast else nullcontext()
