"""CUDA graphs: a step is recorded once and then replayed, one launch in place of hundreds.

Small networks keep a GPU waiting for the host. A step is a pure function of minibatch, noise and weight, so
that it can be recorded with buffers in their place; batches, noise and the trace stay outside.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

WARM_UP = 3  # calls before the recording, in which libraries make their plans and Adam its moments


class Replay:
    """A function of tensors that runs a few times, is then recorded, and is replayed from there on.

    Args:
        function: does the same work whatever the values, and reads and writes the same tensors at every call:
            what changes must come in as an argument, on the GPU. Its result is to be read before the next
            call.

    Tests put a tape of operations in the graph's place; the graph itself they try where there is a GPU.
    """

    def __init__(self, function: Callable[..., Tensor]):
        """Wait for the first call."""
        self.function, self.calls = function, 0
        self.buffers: tuple[Tensor, ...] = ()
        self.result = torch.empty(0)
        self.replay: Callable[[], None] | None = None

    def __call__(self, *arguments: Tensor) -> Tensor:
        """The function at `arguments`, tensors of the same shapes at every call."""
        if not self.buffers:
            self.buffers = tuple(torch.empty_like(argument) for argument in arguments)
        for buffer, argument in zip(self.buffers, arguments, strict=True):
            buffer.copy_(argument)
        if self.calls < WARM_UP:
            with side_stream():
                self._run()
        else:
            if self.replay is None:
                self.replay = capture(self._run)
            self.replay()
        self.calls += 1
        return self.result

    def _run(self) -> None:
        self.result = self.function(*self.buffers)


@contextmanager
def side_stream() -> Iterator[None]:
    """On a stream of its own, as recording asks of what comes before it."""
    here, there = torch.cuda.current_stream(), torch.cuda.Stream()
    there.wait_stream(here)
    with torch.cuda.stream(there):
        yield
    here.wait_stream(there)


def capture(run: Callable[[], None]) -> Callable[[], None]:
    """Record what `run` would do, without doing it; the result does it."""
    graph = torch.cuda.CUDAGraph()
    with nothing_collected(), torch.cuda.graph(graph):
        run()
    return graph.replay


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


def check_graph(device: torch.device, processes: int, recordable: bool) -> None:
    """Raise unless a step can be recorded."""
    if device.type != "cuda":
        raise ValueError(f"cuda_graph=True needs data and network on a CUDA device, they are on {device}")
    if processes > 1:
        raise ValueError("cuda_graph=True is for one process: leave out parallel or cuda_graph")
    if not recordable:
        raise ValueError("cuda_graph=True needs a rule that can be recorded: see RunningRule.recordable")
