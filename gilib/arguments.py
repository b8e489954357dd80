"""Check arguments against their annotations, before work starts: `steps: Count` refuses 0, "3" and nan."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from functools import cache, partial, wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, ParamSpec, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from gilib import validation
from gilib.randomness import check_generator
from gilib.validation import check_count, check_instance, is_number

P = ParamSpec("P")
R = TypeVar("R")
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Count = Annotated[int, check_count]
CountOrZero = Annotated[int, partial(check_count, least=0)]
Positive = Annotated[float, validation.check_positive]
Scale = Annotated[float, validation.check_scale]
Fraction = Annotated[float, validation.check_fraction]
FloatingType = Annotated[torch.dtype, validation.check_floating_type]


def one_of(options: Iterable[str]) -> Callable[[Any, str], None]:
    """Return a check that refuses every other text, for annotations such as `Annotated[str, ...]`."""
    return lambda value, name: validation.check_choice(value, options, name)


class Checked:
    """Base of classes whose constructor checks its arguments, if gilib defines that constructor."""

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        check_arguments(cls.__init__, cls, (None, *args), settings)
        return super().__new__(cls)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it refuses arguments that do not match their annotations.

    >>> @checked
    ... def repeat(word: str, times: Count = 2) -> str: return word * times
    >>> repeat("la", 3)
    'lalala'
    >>> repeat("la", True)
    Traceback (most recent call last):
    ...
    ValueError: times must be an integer of at least 1, got True
    """

    @wraps(function)
    def call(*args: P.args, **settings: P.kwargs) -> R:
        check_arguments(function, None, args, settings)
        return function(*args, **settings)

    return call


def check_arguments(
    function: Callable[..., Any], kind: type | None, args: Sequence[Any], settings: dict[str, Any]
) -> None:
    """Check all arguments against the annotations of a function, or of the constructor of a class `kind`."""
    names, hints = _annotated(function, kind)
    for name, value in [*zip(names, args, strict=False), *settings.items()]:
        if name in hints:
            check_annotated(value, hints[name], name)


@cache
def _annotated(function: Callable[..., Any], kind: type | None) -> tuple[list[str], dict[str, Any]]:
    """Return names of positional arguments, and annotations by name (none for users' own classes)."""
    known = [field for field in inspect.signature(function).parameters.values() if field.kind not in VARIADIC]
    names = [field.name for field in known if field.kind is not inspect.Parameter.KEYWORD_ONLY]
    source: Any = function
    if is_dataclass(kind):
        source = next(base for base in kind.__mro__ if _own(base))
    elif kind is not None and not _own(function):
        return names, {}
    hints = get_type_hints(source, include_extras=True)
    return names, {field.name: hints[field.name] for field in known if field.name in hints}


def _own(part: Any) -> bool:
    return str(getattr(part, "__module__", "")).partition(".")[0] == __package__


def check_annotated(value: object, hint: Any, name: str) -> None:
    """Check a value against an annotation; annotations that cannot be checked accept everything."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Annotated:
        parts[1](value, name)
    elif kind in (Union, UnionType):
        _check_one_of(value, parts, name)
    elif hint is bool:
        check_instance(value, bool, name)
    elif hint is int:
        if not is_number(value, Integral):
            raise ValueError(f"{name} must be an integer, got {value!r}")
    elif hint is float:
        if not is_number(value) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, got {value!r}")
    elif hint is Tensor or hint is np.ndarray:
        if not isinstance(value, np.ndarray):
            validation.check_is_tensor(value, name)
    elif hint is torch.Generator:
        check_generator(value)
    elif kind is Callable:
        if not callable(value):
            raise TypeError(f"{name} must be a function, got {value!r}")
    elif kind in (tuple, Sequence):
        _check_each(value, kind, parts, name)
    elif kind is not type and isinstance(kind or hint, type) and not getattr(hint, "_is_protocol", False):
        check_instance(value, kind or hint, name)


def _check_one_of(value: object, hints: Sequence[Any], name: str) -> None:
    """Check that a value matches one of several annotations; otherwise raise the most relevant error."""
    if value is None and NoneType in hints:
        return
    errors: list[Exception] = []
    for hint in [hint for hint in hints if hint is not NoneType]:
        try:
            check_annotated(value, hint, name)
        except (TypeError, ValueError) as error:
            errors.append(error)
        else:
            return
    raise errors[-1 if isinstance(value, list | tuple) else 0]  # sequences come last


def _check_each(value: object, kind: Any, hints: Sequence[Any], name: str) -> None:
    """Check that a value is a sequence with matching entries, of one kind, or as many as annotations."""
    if isinstance(value, np.ndarray | Tensor) and value.ndim:
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str):
        what = "tuple" if kind is tuple else "list or tuple"
        got = f"{value}: write {name}=({value},)" if isinstance(value, Real) else type(value).__name__
        raise TypeError(f"{name} must be a {what}, got {got}")
    alike = kind is Sequence or hints[-1] is Ellipsis
    if not alike and len(value) != len(hints):
        raise ValueError(f"{name} must be {len(hints)} values, got {value!r}")
    for k, entry in enumerate(value):
        check_annotated(entry, hints[0] if alike else hints[k], f"{name}[{k}]")
