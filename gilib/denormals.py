"""Numbers too small to be normal, below 1e-38 in float32, are taken for zero while a model is trained.

Processors compute with them many times more slowly, and far tails of kernels make them by the million. To
flush them is a setting of each thread: of the one that calls, which torch can set, and of the workers among
which torch shares large tensors, which it cannot. These are asked through the library that keeps them, GNU's
OpenMP, which comes with torch on Linux; elsewhere they stay as they are. Where the processor cannot flush,
and in a process that was forked, nothing happens.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

GRAIN = 1 << 16  # numbers of a thread's share for which torch starts a worker: twice its least
PROCESS = os.getpid()
REGION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def denormals_flushed() -> bool:
    """Whether this thread takes numbers too small to be normal for zero; torch can set that, not tell it.

    >>> denormals_flushed()
    False
    """
    return sys.float_info.min * 0.5 == 0.0


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Within it this thread takes numbers below the least normal one (1e-38 in float32) for zero.

    It is the calling thread's setting, which autograd's pass through tensors of the CPU shares. Workers hold
    on to what they started with; they are started before, so that they do not keep this one.

    >>> with flushed_denormals():
    ...     small = 0.5 * torch.tensor(1e-38)
    >>> float(small) in (0.0, float(0.5 * torch.tensor(1e-38)))
    True
    """
    before = denormals_flushed()
    if not _forked():
        _start_workers()
        torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def flushed_by_workers() -> Iterator[None]:
    """Within it the workers of this thread flush, too; after it each does as it did before.

    It asks every thread, and is for a training rather than for a step.
    """
    own, before = threading.get_ident(), dict[int, bool]()

    def start() -> None:
        if threading.get_ident() != own:
            before[threading.get_ident()] = denormals_flushed()
            torch.set_flush_denormal(True)

    def end() -> None:
        if threading.get_ident() in before:
            torch.set_flush_denormal(before[threading.get_ident()])

    _on_all_threads(start)
    try:
        yield
    finally:
        _on_all_threads(end)


def _on_all_threads(work: Callable[[], None]) -> None:
    """Call it on this thread and each of its workers, where they can be asked."""
    library, threads = openmp(), torch.get_num_threads()
    if library is not None and threads > 1 and not _forked():
        library.GOMP_parallel(REGION(lambda _: work()), None, threads, 0)


def _forked() -> bool:
    """Whether this process was forked: it has none of its parent's workers, and would wait for them."""
    return os.getpid() != PROCESS


@functools.cache
def openmp() -> ctypes.CDLL | None:
    """The library that keeps torch's threads; None: another one does."""
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*"))
    return ctypes.CDLL(str(found[0])) if found else None


_workers = threading.local()


def _start_workers() -> None:
    """Start this thread's workers, that inherit its settings, if they have not been."""
    threads = torch.get_num_threads()
    if threads > getattr(_workers, "started", 1):
        _workers.started = threads
        torch.ones(threads * GRAIN).mul_(2.0)
