"""Operations with derivatives of their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch


class Operation(torch.autograd.Function):
    """A function whose gradient we write: as torch's, called at less cost.

    torch asks Python for the signature of `forward` at every call, for 30 microseconds. Here the answer is
    kept, where Python looks for it first.

    >>> Operation.__base__ is torch.autograd.Function
    True
    """

    def __init_subclass__(cls) -> None:
        """Note the signature."""
        super().__init_subclass__()
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]


def is_transformed(*tensors: torch.Tensor) -> bool:
    """Whether a transform of `torch.func` differentiates by one of them, at any depth, perhaps twice."""
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
    """Whether a transform of `torch.func` is at work, which takes operations with a `setup_context` alone."""
    return not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is not None


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A gradient without one of its own, which says so as soon as that is asked for.

    As `torch.autograd.function.once_differentiable`, whose error never comes where `torch.autograd.grad`
    names its inputs: what passes through the operation is then missing in second derivatives, in silence.
    Transforms of `torch.func` always ask for a graph, and mostly do not use it: there plain products take the
    place of operations (see `is_transformed`), which have derivatives of every order.
    """
    once = torch.autograd.function.once_differentiable(backward)

    @functools.wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._functorch.maybe_current_level() is None:
            raise RuntimeError("this operation has no second derivative: leave create_graph out")
        return once(ctx, *gradients)

    return checked
