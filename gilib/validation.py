"""Checks of users' arguments: `check_...` raises an error if it fails; `as_...` also converts the value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import TypeGuard, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")


def is_number(value: object, kind: type = Real) -> TypeGuard[float]:
    """Return whether `value` is a number of Python or NumPy, of this kind, and not a truth value."""
    return isinstance(value, kind) and not isinstance(value, bool)


def check_positive(value: float, name: str) -> None:
    """Check that `value` is a positive finite number, of Python or NumPy."""
    if not (is_number(value) and 0.0 < value < float("inf")):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def check_scale(value: float, name: str) -> None:
    """Check that `value` is positive, and neither it nor its inverse overflows in float32."""
    check_positive(value, name)
    if not 1e-30 <= value <= 1e30:
        raise ValueError(
            f"{name} must lie between 1e-30 and 1e30, else numbers in float32 overflow, got {value!r}: "
            "normalise the data"
        )


def check_floating_type(value: torch.dtype, name: str) -> None:
    """Check that `value` is a dtype of floating-point numbers."""
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise TypeError(f"{name} must be a floating-point type such as torch.float32, got {value}")


def check_count(value: int, name: str, least: int = 1) -> None:
    """Check that `value` is an integer of at least `least`, of Python or NumPy."""
    if not is_number(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_fraction(value: float, name: str) -> None:
    """Check that `value` is a number of at least 0 and below 1."""
    if not (is_number(value) and 0.0 <= value < 1.0):
        raise ValueError(f"{name} must be a number of at least 0 and below 1, got {value!r}")


def as_replicas(value: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of replica axes as a tuple of integers, else raise an error."""
    if not isinstance(value, (list, tuple)):
        hint = f": write replicas=({value},)" if isinstance(value, Integral) else ""
        raise TypeError(f"replicas must be a tuple, a number for each axis, got {value!r}{hint}")
    for k, size in enumerate(value):
        check_count(size, f"replicas[{k}]")
    return tuple(int(size) for size in value)


def check_image_shape(shape: Sequence[int], model: str) -> tuple[int, int, int]:
    """Return the shape (C, H, W) of images if a model can halve them twice, else raise an error."""
    channels, height, width = shape
    if min(height, width) < 4:
        raise ValueError(f"{model} halves images twice: they need 4 × 4 pixels at least, got {shape}")
    return channels, height, width


def check_width(shape: Sequence[int], features: int, who: str) -> None:
    """Check that points of this shape are vectors of as many numbers as a layer takes."""
    if tuple(shape) != (features,):
        raise ValueError(f"{who} takes points of shape [{features}], got {list(shape)}")


def check_choice(value: str, options: Iterable[str], name: str) -> None:
    """Check that `value` is one of `options`."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(map(repr, options))}")


def check_instance(value: T, kind: type, name: str) -> T:
    """Return `value` if it is an instance of `kind`, else raise an error."""
    if isinstance(value, type) and issubclass(value, kind):
        raise TypeError(f"{name} must be an instance: write {value.__name__}() in place of {value.__name__}")
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
    return value


def check_unused(used: bool, name: str) -> None:
    """Raise an error if a part of a network is used already."""
    if used:
        raise ValueError(f"{name} is used twice, here or in another network: construct one for each place")


def check_tensor(value: object, name: str, like: Tensor | None = None) -> Tensor:
    """Return `value`, a finite tensor of points like `like` in dtype and device, else raise an error."""
    value = check_is_tensor(value, name)
    if value.dim() < 2:
        raise ValueError(f"{name} must have shape [..., points, features], got {list(value.shape)}")
    check_not_empty(value, name)
    if like is not None:
        check_same_kind(value, name, like)
    check_finite(value, name)
    return value


def check_not_empty(value: Tensor, name: str) -> None:
    """Check that a tensor is not empty."""
    if value.numel() == 0:
        raise ValueError(f"{name} is empty: its shape is {list(value.shape)}")


def check_finite(value: Tensor, name: str) -> None:
    """Check that a tensor holds no NaN and no infinity."""
    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} holds {int((~torch.isfinite(value)).sum())} NaN or infinite entries")


def check_unmasked(value: object, name: str) -> None:
    """Check that a NumPy array has no masked entries, whose values are arbitrary."""
    if isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any()):
        count = int(np.ma.getmaskarray(value).sum())
        raise ValueError(f"{name} holds {count} masked entries: fill them in, or leave these points out")


def from_numpy(value: object, like: Tensor | None = None) -> object:
    """Convert NumPy arrays to tensors, floats in the dtype of `like` or torch's; return all else unchanged.

    >>> from_numpy(np.zeros((2, 1))).dtype, from_numpy(np.zeros(2, int)).dtype
    (torch.float32, torch.int64)
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
        return value
    check_unmasked(value, "an array")
    native = np.dtype(np.float64) if value.dtype.itemsize > 8 else value.dtype.newbyteorder("=")
    converted = torch.from_numpy(np.array(value, dtype=native))  # a copy: the user may change the array
    if like is not None:
        converted = converted.to(like.device)
    if not converted.is_floating_point():
        return converted
    return converted.to(torch.get_default_dtype() if like is None else like.dtype)


def as_tensor(value: object, name: str, like: Tensor | None = None) -> Tensor:
    """Return a tensor unchanged and a NumPy array converted by `from_numpy`; else raise an error."""
    return check_is_tensor(from_numpy(value, like), name)


def as_inputs(value: object, name: str, like: Tensor | None = None) -> Tensor:
    """Return inputs as a tensor, like `as_tensor`; integers of NumPy arrays become floating-point numbers."""
    whole = isinstance(value, np.ndarray) and value.dtype.kind in "iub"
    found = as_tensor(value, name, like)
    return found.to(torch.get_default_dtype() if like is None else like.dtype) if whole else found


def check_is_tensor(value: object, name: str) -> Tensor:
    """Return `value` if it is a dense real tensor, else raise an error."""
    if not isinstance(value, Tensor):
        hint = ": hand over its .to_numpy()" if hasattr(value, "to_numpy") else ""
        if isinstance(value, np.ndarray):
            hint = ": hand over torch.from_numpy(...) of it"
        if isinstance(value, np.ndarray) and value.dtype.kind not in "fiub":
            hint = f" of {value.dtype}: make numbers of it, of columns of a frame by .to_numpy(dtype=float)"
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}{hint}")
    if value.layout != torch.strided or value.is_nested:
        kind, dense = ("nested", "to_padded_tensor(...)") if value.is_nested else ("sparse", "to_dense()")
        raise TypeError(f"{name} is a {kind} tensor, and dense ones are taken: hand over {name}.{dense}")
    if value.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {value.dtype}: hand over {name}.real, or .abs()")
    return value


def check_distributions(probabilities: Tensor) -> None:
    """Check that every row is a probability distribution, up to the rounding of float16."""
    away = (probabilities.sum(-1) - 1.0).abs()
    if not bool(((away < 1e-2) & (probabilities >= 0.0).all(-1)).all()):  # false for NaN, too
        raise ValueError(
            "every row of probabilities must be a distribution, not negative, of sum 1, without NaN: apply "
            "softmax(-1) to logits"
        )


def as_integers(value: Tensor) -> Tensor:
    """Return class labels of any integer dtype as int64, else raise an error."""
    if value.is_floating_point() or value.is_complex():
        raise TypeError(f"class labels must be integers, got {value.dtype}: convert with y.long()")
    return value.long()


def as_labels(value: Tensor, classes: int, hint: str = "") -> Tensor:
    """Return class labels as int64 if they are integers from 0 to `classes` - 1, else raise an error."""
    labels = as_integers(value)
    if bool(((labels < 0) | (labels >= classes)).any()):
        raise ValueError(
            f"class labels must lie in 0 ... {classes - 1}{hint}, "
            f"got {int(labels.min())} ... {int(labels.max())}"
        )
    return labels


def check_same_device(value: Tensor, name: str, like: Tensor) -> None:
    """Check that `value` is on the device of `like`."""
    if value.device != like.device:
        raise ValueError(f"{name} is on {value.device} but the network is on {like.device}: move one of them")


def check_same_kind(value: Tensor, name: str, like: Tensor) -> None:
    """Check that `value` has the dtype and the device of `like`."""
    if value.dtype != like.dtype:
        raise ValueError(
            f"{name} has dtype {value.dtype} but the network has {like.dtype}: convert one of them, "
            f"for example {name}.to({like.dtype})"
        )
    check_same_device(value, name, like)


def check_points_kind(x: Tensor, like: Tensor) -> None:
    """Check that points `x` have dtype and device of a drawn function's `like`, unless autocast converts."""
    if x.dtype != like.dtype and not torch.is_autocast_enabled(x.device.type):
        check_same_kind(x, "x", like)


def check_own_targets(own: Sequence[int], replicas: Sequence[int], name: str = "targets") -> None:
    """Check that `own`, the axes of targets before their points, broadcast to the replica axes.

    With an axis of samples, each sample would be trained, or scored, with another data set.
    """
    pairs = zip(reversed(own), reversed(replicas), strict=False)
    if len(own) > len(replicas) or any(size not in (1, count) for size, count in pairs):
        more = f", or one for each replica, {list(replicas)}" if len(replicas) else "; there are no replicas"
        raise ValueError(
            f"{name} have axes {[*own]} before their points: samples share them, give one set for all{more}"
        )


def check_precision(dtype: torch.dtype, name: str) -> None:
    """Check that `dtype` is float32 or float64, in which factorisations can be computed."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"{name} must be in torch.float32 or torch.float64, got {dtype}: convert with .float() "
            '(fit(speed=gilib.training.Speed(arithmetic="bfloat16")) rounds only where the data pass)'
        )
