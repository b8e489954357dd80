"""Checks of what users hand in, made once, before any work starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def positive(value: float, name: str) -> None:
    """Raise unless `value` is a positive finite number."""
    if not (isinstance(value, int | float) and 0.0 < value < float("inf")):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def count(value: int, name: str, least: int = 1) -> None:
    """Raise unless `value` is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def choice(value: str, options: Iterable[str], name: str) -> None:
    """Raise unless `value` is one of `options`."""
    options = tuple(options)
    if value not in options:
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(map(repr, options))}")


def instance(value: T, kind: type, name: str) -> T:
    """Return `value` if it is a `kind`, else raise."""
    if isinstance(value, type) and issubclass(value, kind):
        raise TypeError(f"{name} must be an instance: write {value.__name__}() in place of {value.__name__}")
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
    return value


def tensor(value: object, name: str, like: Tensor | None = None) -> Tensor:
    """Return `value` if it is a finite tensor with points, of the dtype and on the device of `like`."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.dim() < 2:
        raise ValueError(f"{name} must have shape [..., points, features], got {list(value.shape)}")
    if value.numel() == 0:
        raise ValueError(f"{name} is empty: its shape is {list(value.shape)}")
    if like is not None and value.is_floating_point() and value.dtype != like.dtype:
        raise ValueError(
            f"{name} has dtype {value.dtype} but the network has {like.dtype}: convert one of them, "
            f"for example {name}.to({like.dtype})"
        )
    if like is not None and value.device != like.device:
        raise ValueError(f"{name} is on {value.device} but the network is on {like.device}: move one of them")
    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} holds {int((~torch.isfinite(value)).sum())} NaN or infinite entries")
    return value
