"""Differentiable operations with hand-written gradients."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch


class Operation(torch.autograd.Function):
    """`torch.autograd.Function` with cheaper calls."""

    def __init_subclass__(cls) -> None:
        """Store the signature of `forward`, which torch inspects at every call, in 30 microseconds."""
        super().__init_subclass__()
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]


def is_transformed(*tensors: torch.Tensor) -> bool:
    """Return whether a transform of `torch.func`, at any depth, differentiates with respect to a tensor."""
    if torch.compiler.is_compiling():
        return False
    functorch = torch._C._functorch
    for tensor in tensors:
        while functorch.is_functorch_wrapped_tensor(tensor):
            if functorch.is_gradtrackingtensor(tensor):
                return True
            tensor = functorch.get_unwrapped(tensor)
    return False


def within_transform() -> bool:
    """Return whether a transform of `torch.func` is active, which needs operations with `setup_context`."""
    return not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is not None


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward pass that cannot be differentiated again, so that an attempt raises an error.

    torch's `once_differentiable` raises too late: second derivatives with respect to given inputs silently
    lack the operation. Transforms of `torch.func` always request a graph, so nothing is raised there, where
    operations replace themselves by plain products (see `is_transformed`).
    """
    once = torch.autograd.function.once_differentiable(backward)

    @functools.wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._functorch.maybe_current_level() is None:
            raise RuntimeError("this operation has no second derivative: leave create_graph out")
        return once(ctx, *gradients)

    return checked
