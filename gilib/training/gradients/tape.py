"""Tapes: a step's tensor operations on the CPU, recorded once and repeated without Python's work in between.

A repetition does the same arithmetic in the same memory, to the last bit. Where a step reads a number, on
which it may branch, the tape stores it; a repetition that reads another one stops, and undoes its changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FILLS = frozenset(
    f"aten::{name}" for name in ("new_zeros", "zeros_like", "new_ones", "ones_like", "new_full", "full_like")
)  # what they give depends on the shape of a tensor alone
FREQUENT = (
    "add.Tensor bmm cat div.Tensor exp log mean.dim mm mul.Scalar mul.Tensor neg pow.Tensor_Scalar sqrt "
    "sub.Tensor sum.dim_IntList"
)  # operations that torch's own functions call half a microsecond faster
QUICK = {f"aten::{name}": getattr(torch, name.split(".")[0]) for name in FREQUENT.split()}
COPIES = frozenset({"aten::_to_copy", "aten::clone"})


class UnrecordableError(RuntimeError):
    """A step returns tensors whose size depends on values, or needs more memory than it may hold."""


class Recorded(NamedTuple):
    """One operation: its arguments and its result."""

    function: OpOverload
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any

    @property
    def read(self) -> list[Tensor]:
        """The tensors among its arguments."""
        return _tensors((self.args, self.kwargs))

    @property
    def given(self) -> list[Tensor]:
        """The tensors among its results."""
        return _tensors(self.result)

    @property
    def written(self) -> list[Tensor]:
        """The tensors among its arguments that it changes."""
        arguments = self.function._schema.arguments
        named = dict(zip((own.name for own in arguments), self.args, strict=False)) | dict(self.kwargs)
        marked = [own.name for own in arguments if own.alias_info is not None and own.alias_info.is_write]
        return _tensors([named.get(name) for name in marked])

    @property
    def has_memory(self) -> bool:
        """Whether all results lie in the arguments' memory, as for views and in-place operations."""
        return _memory(self.given) <= _memory(self.read)

    @property
    def is_constant(self) -> bool:
        """Whether the result is the same every time, provided that nothing else writes to its memory."""
        drawn = torch.Tag.nondeterministic_seeded in self.function.tags
        return not drawn and (not self.read or self.function.name().split(".")[0] in FILLS)


class Tape:
    """The operations of a function without arguments, which is called once to record them.

    Args:
        run: must read and write the same tensors at every call. Random draws inside it are new at every
            repetition.
        room: how many bytes of results the tape may hold.

    >>> total, terms = torch.zeros(2), torch.ones(2)
    >>> repeat = Tape(lambda: total.add_(2 * terms))
    >>> _ = terms.fill_(5.0)
    >>> repeat(), total
    (True, tensor([12., 12.]))
    """

    def __init__(self, run: Callable[[], object], room: float = math.inf):
        with _Recording(room) as recording:
            run()
        if recording.room < 0:
            raise UnrecordableError(f"its results take more than {room} bytes")
        self.operations = recording.operations  # as long as they live, the memory of their results does
        for own in self.operations:
            if torch.Tag.dynamic_output_shape in own.function.tags:
                raise UnrecordableError(f"{own.function.name()} gives tensors whose size depends on values")
        written = _memory(tensor for own in self.operations for tensor in own.written)
        self.calls = [call for own in self.operations if (call := _call(own, written)) is not None]
        self.exposed = _exposed(self.operations)

    def __call__(self) -> bool:
        """Repeat the operations and return True; False if a decision differs, after all is undone."""
        with torch.inference_mode():  # the tape holds the operations of the backward pass, so no autograd
            before = [tensor.clone() for tensor in self.exposed]
            try:
                for call in self.calls:
                    call()
            except _OtherwiseError:
                for tensor, value in zip(self.exposed, before, strict=True):
                    tensor.copy_(value)
                return False
        return True


class _OtherwiseError(Exception):
    """A repetition has read another number than the recording did."""


class _Recording(TorchDispatchMode):
    """Records the tensor operations inside its block, including backward passes, if there is room."""

    def __init__(self, room: float) -> None:
        super().__init__()
        self.operations: list[Recorded] = []
        self.room = room  # bytes

    def __torch_dispatch__(
        self, function: OpOverload, types: object, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if self.room >= 0:
            own = Recorded(function, args, kwargs or {}, result)
            self.operations.append(own)
            new = {_place(tensor): tensor for tensor in own.given}
            self.room -= sum(new[key].untyped_storage().nbytes() for key in new.keys() - _memory(own.read))
            if self.room < 0:
                self.operations.clear()
        return result


def _tensors(values: object) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _memory(tensors: Iterable[Tensor]) -> set[int]:
    return {_place(tensor) for tensor in tensors}


def _exposed(operations: Sequence[Recorded]) -> list[Tensor]:
    """Return tensors from outside the tape that are written before its last decision, where it may stop."""
    decisions = [k for k, own in enumerate(operations) if _decides(own)]
    made: set[int] = set()
    exposed: dict[int, Tensor] = {}
    for own in operations[: decisions[-1]] if decisions else ():
        exposed |= {id(tensor): tensor for tensor in own.written if _place(tensor) not in made}
        made |= _memory(own.given) - _memory(own.read)
    return list(exposed.values())


def _decides(own: Recorded) -> bool:
    """Return whether an operation reads a number from a tensor, on which Python may then branch."""
    return isinstance(own.result, bool | int | float) and bool(own.read)


def _call(own: Recorded, written: set[int]) -> Callable[[], Any] | None:
    """Return what repeats an operation in its recorded memory, or None if nothing has to be repeated."""
    function, args, kwargs = own.function, own.args, own.kwargs
    if _decides(own):
        return partial(_compare, function._op, own.result, args, **kwargs)
    copied = partial(_copied, function._op, own.given, args, **kwargs)
    if function._schema.is_mutable:  # it may also return new tensors, which later operations read
        return partial(function._op, *args, **kwargs) if own.has_memory else copied
    # A view looks at the same memory at every repetition. A constant is still there from the recording,
    # unless an in-place operation has overwritten it since.
    if own.has_memory or (own.is_constant and not _memory(own.given) & written):
        return None
    if "::empty" in function.name() or "::new_empty" in function.name():
        return None
    if function.name().split(".")[0] in COPIES:
        return partial(own.result.copy_, args[0])  # without a new allocation
    known = _in_place(function)
    if known is None or len(known[1]) != len(own.given):  # some results may be left out
        return copied
    return partial(known[0], *args, **kwargs, **dict(zip(known[1], own.given, strict=True)))


def _compare(function: Callable[..., Any], known: float, args: Sequence[Any], **kwargs: Any) -> None:
    if function(*args, **kwargs) != known:
        raise _OtherwiseError


def _copied(function: Callable[..., Any], memory: list[Tensor], args: Sequence[Any], **kwargs: Any) -> None:
    for new, old in zip(_tensors(function(*args, **kwargs)), memory, strict=True):
        old.copy_(new)


@cache
def _in_place(function: OpOverload) -> tuple[Callable[..., Any], list[str]] | None:
    """Return the variant of an operation that writes to given memory, if any, and those arguments' names."""
    wanted = [(own.name, str(own.type)) for own in function._schema.arguments]
    for name in function.overloadpacket.overloads():
        found = getattr(function.overloadpacket, name)
        arguments = found._schema.arguments
        if [(own.name, str(own.type)) for own in arguments if not own.is_out] == wanted:
            results = [own.name for own in arguments if own.is_out]
            if len(results) == len(function._schema.returns):
                return QUICK.get(function.name(), found._op), results
    return None
