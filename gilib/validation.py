"""Checks of what users hand in, made once, before any work starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")


def check_positive(value: float, name: str) -> None:
    """Raise unless `value` is a positive finite number, of Python or of numpy."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and 0.0 < value < float("inf")):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def check_scale(value: float, name: str) -> None:
    """Raise unless `value` is positive, and float32 can compute with it and with its inverse."""
    check_positive(value, name)
    if not 1e-30 <= value <= 1e30:
        raise ValueError(
            f"{name} must lie between 1e-30 and 1e30, else numbers in float32 overflow, got {value!r}: "
            "normalise the data"
        )


def check_count(value: int, name: str, least: int = 1) -> None:
    """Raise unless `value` is an integer of at least `least`, of Python or of numpy."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_fraction(value: float, name: str) -> float:
    """Return `value` if it is a number of at least 0 and below 1, else raise."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and 0.0 <= value < 1.0):
        raise ValueError(f"{name} must be a number of at least 0 and below 1, got {value!r}")
    return float(value)


def as_replicas(value: Sequence[int]) -> tuple[int, ...]:
    """The shape of replica axes as a tuple, else raise."""
    if not isinstance(value, (list, tuple)):
        hint = f": write replicas=({value},)" if isinstance(value, Integral) else ""
        raise TypeError(f"replicas must be a tuple, a number for each axis, got {value!r}{hint}")
    for k, size in enumerate(value):
        check_count(size, f"replicas[{k}]")
    return tuple(int(size) for size in value)


def check_image_shape(shape: Sequence[int], model: str) -> tuple[int, int, int]:
    """The shape (C, H, W) of images for a model that halves them twice, else raise."""
    channels, height, width = shape
    if min(height, width) < 4:
        raise ValueError(f"{model} halves images twice: they need 4 × 4 pixels at least, got {shape}")
    return channels, height, width


def check_choice(value: str, options: Iterable[str], name: str) -> None:
    """Raise unless `value` is one of `options`."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(map(repr, options))}")


def check_instance(value: T, kind: type, name: str) -> T:
    """Return `value` if it is a `kind`, else raise."""
    if isinstance(value, type) and issubclass(value, kind):
        raise TypeError(f"{name} must be an instance: write {value.__name__}() in place of {value.__name__}")
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
    return value


def check_unused(used: bool, name: str) -> None:
    """Raise ValueError if a part of a network has its place already."""
    if used:
        raise ValueError(f"{name} is used twice, here or in another network: construct one for each place")


def check_tensor(value: object, name: str, like: Tensor | None = None) -> Tensor:
    """Return `value` if it is a finite tensor with points, of the dtype and on the device of `like`."""
    value = check_is_tensor(value, name)
    if value.dim() < 2:
        raise ValueError(f"{name} must have shape [..., points, features], got {list(value.shape)}")
    check_not_empty(value, name)
    if like is not None:
        check_same_kind(value, name, like)
    check_finite(value, name)
    return value


def check_not_empty(value: Tensor, name: str) -> None:
    """Raise if there is nothing in it."""
    if value.numel() == 0:
        raise ValueError(f"{name} is empty: its shape is {list(value.shape)}")


def check_finite(value: Tensor, name: str) -> None:
    """Raise for NaN and infinite numbers."""
    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} holds {int((~torch.isfinite(value)).sum())} NaN or infinite entries")


def check_unmasked(value: object, name: str) -> None:
    """Raise for an array of numpy some of whose entries are masked: below the mask anything may stand."""
    if isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any()):
        count = int(np.ma.getmaskarray(value).sum())
        raise ValueError(f"{name} holds {count} masked entries: fill them in, or leave these points out")


def from_numpy(value: object, like: Tensor | None = None) -> object:
    """An array of numpy as a tensor, its floating-point numbers as `like`; anything else as it is.

    >>> from_numpy(np.zeros((2, 1))).dtype, from_numpy(np.zeros(2, int)).dtype
    (torch.float32, torch.int64)
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
        return value
    check_unmasked(value, "an array")
    native = np.dtype(np.float64) if value.dtype.itemsize > 8 else value.dtype.newbyteorder("=")
    converted = torch.from_numpy(np.array(value, dtype=native))  # its own memory
    if like is not None:
        converted = converted.to(like.device)
    if not converted.is_floating_point():
        return converted
    return converted.to(torch.get_default_dtype() if like is None else like.dtype)


def as_tensor(value: object, name: str, like: Tensor | None = None) -> Tensor:
    """A tensor as it is, an array of numpy as `from_numpy` has it; raise for anything else."""
    return check_is_tensor(from_numpy(value, like), name)


def as_inputs(value: object, name: str, like: Tensor | None = None) -> Tensor:
    """The same of inputs: whole numbers of numpy are numbers like all others.

    >>> as_inputs(np.zeros((2, 1), int), "x").dtype
    torch.float32
    """
    whole = isinstance(value, np.ndarray) and value.dtype.kind in "iub"
    found = as_tensor(value, name, like)
    return found.to(torch.get_default_dtype() if like is None else like.dtype) if whole else found


def check_is_tensor(value: object, name: str) -> Tensor:
    """Return `value` if it is a tensor, else raise."""
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
    """Raise unless every row is a distribution, up to what rounding and float16 leave."""
    away = (probabilities.sum(-1) - 1.0).abs()
    if not bool(((away < 1e-2) & (probabilities >= 0.0).all(-1)).all()):  # NaN is not below it
        raise ValueError(
            "every row of probabilities must be a distribution, not negative, of sum 1, without NaN: apply "
            "softmax(-1) to logits"
        )


def as_integers(value: Tensor) -> Tensor:
    """Class labels of any integer dtype as int64, else raise."""
    if value.is_floating_point() or value.is_complex():
        raise TypeError(f"class labels must be integers, got {value.dtype}: convert with y.long()")
    return value.long()


def as_labels(value: Tensor, classes: int, hint: str = "") -> Tensor:
    """Class labels of any integer dtype as int64, if they are below the number of classes, else raise."""
    labels = as_integers(value)
    if bool(((labels < 0) | (labels >= classes)).any()):
        raise ValueError(
            f"class labels must lie in 0 ... {classes - 1}{hint}, "
            f"got {int(labels.min())} ... {int(labels.max())}"
        )
    return labels


def check_same_device(value: Tensor, name: str, like: Tensor) -> None:
    """Raise unless `value` is on the device of `like`."""
    if value.device != like.device:
        raise ValueError(f"{name} is on {value.device} but the network is on {like.device}: move one of them")


def check_same_kind(value: Tensor, name: str, like: Tensor) -> None:
    """Raise unless `value` has the dtype of `like` and is on its device."""
    if value.dtype != like.dtype:
        raise ValueError(
            f"{name} has dtype {value.dtype} but the network has {like.dtype}: convert one of them, "
            f"for example {name}.to({like.dtype})"
        )
    check_same_device(value, name, like)


def check_points_kind(x: Tensor, like: Tensor) -> None:
    """Raise unless points `x` have the dtype of what they meet in a drawn function; autocast converts."""
    if x.dtype != like.dtype and not torch.is_autocast_enabled(x.device.type):
        check_same_kind(x, "x", like)


def check_own_targets(own: Sequence[int], replicas: Sequence[int], name: str = "targets") -> None:
    """Raise unless `own`, the axes of targets before their points, are replicas' axes, or broadcast to them.

    Samples share their targets, and the inputs of a bound: an axis of as many sets as there are samples would
    train or score each sample by a set of its own.

    >>> check_own_targets((3,), (3,)), check_own_targets((), (3,))
    (None, None)
    """
    pairs = zip(reversed(own), reversed(replicas), strict=False)
    if len(own) > len(replicas) or any(size not in (1, count) for size, count in pairs):
        wanted = (
            f", or one for each replica, {list(replicas)}" if len(replicas) else "; there are no replicas"
        )
        raise ValueError(
            f"{name} have axes {list(own)} before their points: samples share them, "
            f"give one set for all{wanted}"
        )


def check_precision(dtype: torch.dtype, name: str) -> None:
    """Raise unless factorisations can be computed in `dtype`."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"{name} must be in torch.float32 or torch.float64, got {dtype}: convert with .float() "
            '(fit(speed=gilib.training.Speed(arithmetic="bfloat16")) rounds only where the data pass)'
        )
