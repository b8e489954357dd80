"""How numbers are computed, where torch makes it a setting and not an argument.

Products of float32 numbers on CUDA are exact ("ieee") or rounded to ten bits ("tf32"), for the whole process;
torch's own default is TF32 for convolutions. `torch.autocast` rounds all products of a thread to seven bits.
Whatever draws or evaluates functions does so within `exact_products`, in training and outside of it: a bound
that is measured is the bound that was trained. Training computes gradients within it, too; a gradient that
you take yourself, wherever torch is set to.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

CUDNN: Any = torch.backends.cudnn
Precisions = tuple[str, str]


def product_precisions() -> Precisions:
    """How CUDA multiplies matrices and how it convolves: "none" is torch's default."""
    return torch.backends.cuda.matmul.fp32_precision, CUDNN.conv.fp32_precision


def set_product_precisions(matrices: str, convolutions: str) -> None:
    """For the whole process; to be called by the thread for which `switchable_products` holds."""
    torch.backends.cuda.matmul.fp32_precision = matrices
    CUDNN.conv.fp32_precision = convolutions


class _Threads:
    """The threads that rely on the setting: many that want it exact, or one that may switch it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.inside: Counter[int] = Counter()  # how often each thread has entered
        self.alone: int | None = None
        self.before: Precisions = ("none", "none")

    def enter(self, thread: int, alone: bool) -> None:
        """Wait for those that are in the way; the first one to come sets the precision."""
        with self.changed:
            self.changed.wait_for(lambda: self.admits(thread, alone))
            if not self.inside:
                self.before = product_precisions()
                set_product_precisions("ieee", "ieee")
            self.inside[thread] += 1
            self.alone = thread if alone else self.alone

    def admits(self, thread: int, alone: bool) -> bool:
        return self.alone in (None, thread) and not (alone and self.inside.keys() - {thread})

    def leave(self, thread: int) -> None:
        """The last one to go restores what it found."""
        with self.changed:
            self.inside[thread] -= 1
            if not self.inside[thread]:
                del self.inside[thread]
                self.alone = None if self.alone == thread else self.alone
            if not self.inside:
                set_product_precisions(*self.before)
            self.changed.notify_all()


class _Here(threading.local):
    """Whether the thread that asks is within, and may not switch: then there is nothing to do."""

    exact = False


_threads, _here, _nothing = _Threads(), _Here(), nullcontext()


def exact_products() -> AbstractContextManager[None]:
    """Within it CUDA computes with float32 numbers as IEEE has them; threads share this, and nest it.

    The setting is as before when the last thread has left. Compiled code keeps the setting under which it
    runs. `torch.autocast` is left meanwhile: posteriors do not bear its rounding.

    >>> with exact_products():
    ...     torch.backends.cuda.matmul.fp32_precision
    'ieee'
    """
    return _nothing if torch.compiler.is_compiling() or _here.exact else _exact()


@contextmanager
def _exact() -> Iterator[None]:
    thread = threading.get_ident()
    if _threads.alone == thread:
        with _switched("ieee"):
            yield
        return
    _threads.enter(thread, alone=False)
    _here.exact = True
    try:
        with _without_autocast():
            yield
    finally:
        _here.exact = False
        _threads.leave(thread)


@contextmanager
def switchable_products() -> Iterator[None]:
    """As `exact_products`, for one thread at a time, which may then round for a while.

    Other threads wait before they draw, until it has left: a step is spent within, and no more. Within, it
    must not wait for another thread that draws, as autograd's of a GPU would if it drew again in its backward
    pass.
    """
    thread, exact = threading.get_ident(), _here.exact
    _threads.enter(thread, alone=True)
    _here.exact = False
    try:
        with _without_autocast():
            yield
    finally:
        _here.exact = exact
        _threads.leave(thread)


@contextmanager
def rounded_products() -> Iterator[None]:
    """Within it CUDA computes in TF32; then as before.

    Raises:
        RuntimeError: outside of `switchable_products`: other threads would be rounded with it.
    """
    if _threads.alone != threading.get_ident():
        raise RuntimeError("rounded_products is for the thread that is within switchable_products")
    with _switched("tf32"):
        yield


@contextmanager
def _switched(precision: str) -> Iterator[None]:
    before = product_precisions()
    set_product_precisions(precision, precision)
    try:
        yield
    finally:
        set_product_precisions(*before)


def _without_autocast() -> AbstractContextManager[object]:
    """Outside of `torch.autocast` on the CPU and on CUDA."""
    inside = ExitStack()
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            inside.enter_context(torch.autocast(device, enabled=False))
    return inside
