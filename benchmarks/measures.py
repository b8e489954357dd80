"""What several benchmarks measure: what a machine can do, and what a step does with time and memory."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from gilib.linalg.products import matmul

PASSES = 10  # of a parameter through memory, see `traffic`
CPU = torch.device("cpu")
PRODUCT_SIZE = {"cpu": 2048, "cuda": 8192}  # rows of the square matrices that are multiplied
COPIED = 2**24  # numbers of four bytes that are copied
RECORDED = 6  # steps after which a training replays its step, if it does
LIMIT = 2.0  # seconds after which a processor has shown enough
Clock = Callable[[], float]
Step = Callable[[], Any]


class Spent(NamedTuple):
    """What a step takes.

    Attributes:
        ms: median milliseconds.
        fastest_ms: of the fastest step, which other work on the machine disturbs least.
        faults: minor faults, mean.
    """

    ms: float
    fastest_ms: float
    faults: float


def wait(device: torch.device) -> None:
    """Until the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def clock(device: torch.device = CPU) -> Clock:
    """The seconds that are compared.

    On one thread of a CPU those of the processor: they hardly depend on what else the machine does. With
    several threads, or on a GPU, those on the wall: processor time then counts waiting as well.
    """
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter


def spent(
    steps: Mapping[str, Step], repeats: int, warm_up: int = 2, device: torch.device = CPU
) -> dict[str, Spent]:
    """What steps take that take turns, after some that are not counted."""
    now = clock(device)
    times: dict[str, list[float]] = {name: [] for name in steps}
    faults: dict[str, list[int]] = {name: [] for name in steps}
    for repeat in range(repeats + warm_up):
        for name, step in steps.items():
            before, started = minor_faults(), now()
            step()
            wait(device)
            if repeat >= warm_up:
                times[name].append(1e3 * (now() - started))
                faults[name].append(minor_faults() - before)
    return {
        name: Spent(statistics.median(times[name]), min(times[name]), statistics.mean(faults[name]))
        for name in steps
    }


class Watch:
    """A callback that times the steps of `gilib.fit` in a row, and then ends the training.

    Attributes:
        ms: milliseconds of a step, once it has ended, by `clock`.
        timed: of how many.
        settings: of `gilib.fit`.
    """

    def __init__(self, device: torch.device, repeats: int, replay: bool = False):
        """On a processor the first step is not timed, else all those before a recording is replayed."""
        self.device, self.repeats, self.ms, self.timed = device, repeats, 0.0, 0
        self.now = clock(device)
        self.warm_up, self.started = RECORDED if replay or device.type == "cuda" else 1, 0.0
        self.settings = {"steps": self.warm_up + repeats, "callbacks": (self,), "progress": False}

    def __call__(self, steps: int, bound: torch.Tensor, net: torch.nn.Module) -> bool:
        """After every step; true when there were enough."""
        self.timed = steps - self.warm_up
        if self.timed == 0:
            wait(self.device)
            self.started = self.now()
        late = self.device.type == "cpu" and self.timed > 0 and self.now() - self.started > LIMIT
        if late or self.timed == self.repeats:
            wait(self.device)
            self.ms = 1e3 * (self.now() - self.started) / self.timed
        return self.ms > 0.0


def rate(device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> float:
    """GFLOP/s of large matrix products, the best of five; by the faster library where there are two."""
    now, size = clock(device), PRODUCT_SIZE[device.type]
    matrix, found = torch.randn(size, size, device=device, dtype=dtype), []
    for _ in range(6):
        started = now()
        matmul(matrix, matrix)
        wait(device)
        found.append(now() - started)
    return 2 * size**3 / min(found[1:]) / 1e9


def copy_rate(device: torch.device = CPU) -> float:
    """GB/s, read and written, of a copy that fits in no cache, the best of five."""
    now, source = clock(device), torch.ones(COPIED, device=device)
    target, found = torch.empty_like(source), []
    for _ in range(6):
        started = now()
        target.copy_(source)
        wait(device)
        found.append(now() - started)
    return 2 * source.nbytes / min(found[1:]) / 1e9


def traffic(model: torch.nn.Module, data: int) -> float:
    """Megabytes of a step of Adam in float32, those of what lies between the layers aside.

    Ten passes of the parameters: read forward and backward, and their gradient written; value, gradient and
    two moments read by the optimiser; value and moments written. Data: once.

    Args:
        model: with the parameters.
        data: numbers in a minibatch.
    """
    return 4e-6 * (PASSES * sum(parameter.numel() for parameter in model.parameters()) + data)


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
