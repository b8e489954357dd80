"""What several benchmarks measure: how fast large products are, and what a step does with memory."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

CPU = torch.device("cpu")


def wait(device: torch.device) -> None:
    """Until the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def rate(device: torch.device = CPU, clock: Callable[[], float] = time.perf_counter) -> float:
    """GFLOP/s of large float32 matrix products, by wall-clock time or, given its clock, by CPU time."""
    size = 8192 if device.type == "cuda" else 2048
    matrix = torch.randn(size, size, device=device)
    matrix @ matrix
    wait(device)
    started = clock()
    for _ in range(5):
        matrix @ matrix
    wait(device)
    return 5 * 2 * size**3 / (clock() - started) / 1e9


def peak_memory(step: Callable[[], Any], device: torch.device = CPU) -> tuple[int, Any]:
    """The most bytes that a step holds beyond what is held before it, and what it returns."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = step()
        return torch.cuda.max_memory_allocated() - before, result
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        result = step()
    events = trace.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(change for _, change in changes)), result


def minor_faults() -> int:
    """Pages that the system has handed to this process so far; 0 where it does not count them.

    A page of 4 kB costs about a microsecond, more where memory is slow, and comes again and again if the
    allocator gives back what a step has freed.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def keep_memory() -> None:
    """Ask the allocator to keep what is freed, for the rest of this process; needs glibc."""
    if not sys.platform.startswith("linux"):
        raise RuntimeError(f"only glibc's allocator takes this request, not that of {sys.platform}")
    library = ctypes.CDLL(None)
    options = {"M_MMAP_THRESHOLD": (-3, 2**30), "M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 2**26)}
    for name, (key, value) in options.items():
        if not hasattr(library, "mallopt") or not library.mallopt(key, value):
            raise RuntimeError(f"this C library does not take {name}")
