"""What several benchmarks measure: how fast large products are, and how much memory a step holds."""

from __future__ import annotations

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
