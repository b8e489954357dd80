"""CUDA graphs: a step is recorded once and then replayed, one launch in place of hundreds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def side_stream() -> Iterator[None]:
    """On a stream of its own, as recording asks of what comes before it."""
    here, there = torch.cuda.current_stream(), torch.cuda.Stream()
    there.wait_stream(here)
    with torch.cuda.stream(there):
        yield
    here.wait_stream(there)


def capture(run: Callable[[], object]) -> Callable[[], bool]:
    """Record what `run` does, and do it once; the result does it again, and says that it has."""
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
    """Without garbage collection, after one that frees the memory of earlier recordings.

    A graph that is destroyed while another is recorded spoils the recording, and those of trainings that are
    over lie in cycles of references until they are collected.
    """
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
