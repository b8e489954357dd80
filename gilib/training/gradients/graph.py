"""CUDA graphs: a step is recorded once and then replayed, with one launch instead of hundreds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def side_stream() -> Iterator[None]:
    """Run the block on a CUDA stream of its own, as warm-up calls before a recording must."""
    here, there = torch.cuda.current_stream(), torch.cuda.Stream()
    there.wait_stream(here)
    with torch.cuda.stream(there):
        yield
    here.wait_stream(there)


def capture(run: Callable[[], object]) -> Callable[[], bool]:
    """Record what `run` does, and run it once; the returned function runs it again and returns True."""
    graph = torch.cuda.CUDAGraph()
    with nothing_collected(), torch.cuda.graph(graph):
        run()

    def replay() -> bool:
        graph.replay()
        return True

    replay()
    return replay


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Disable garbage collection within the block, after one collection that frees earlier recordings.

    Destroying a graph while another one is recorded spoils the recording. Graphs of finished trainings lie in
    reference cycles, so the garbage collector may destroy them at any time.
    """
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
