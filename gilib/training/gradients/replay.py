"""Replay: a step is recorded once, on CUDA as a graph, on the CPU as a tape, and then repeated."""

from __future__ import annotations

import functools
import gc
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from gilib.training.gradients.tape import Tape, UnrecordableError

WARM_UP = 3  # calls before the recording: libraries choose algorithms then, and Adam creates its moments
UNASKED = 20  # calls before a recording that nobody has asked for: it costs as much as a few of them
PATIENCE = 10  # calls in a row that branch differently before the step is recorded again
RECORDINGS = 5  # the largest number of recordings of a step
ROOM = 2**27  # bytes of results beyond which Python's work is small beside the arithmetic


class Replay:
    """A function of tensors that is called normally a few times, then recorded, and replayed from then on.

    It must do the same operations on the same tensors at every call; all that changes is an argument. Read
    its result before the next call. On the CPU it may branch on values: where it would take another branch
    than in the recording, it is called normally, and after ten such calls in a row recorded again.
    If the caller has not asked for it, it gives no warnings, and holds at most `ROOM` bytes of results.
    """

    def __init__(self, function: Callable[..., Tensor], device: torch.device, asked: bool = True):
        self.function, self.on_cpu, self.asked = function, device.type == "cpu", asked
        self.warm_up = WARM_UP if asked else UNASKED
        self.calls, self.missed, self.recordings, self.phase = 0, 0, 0, 0
        self.buffers: tuple[Tensor, ...] = ()
        self.result, self.recorded = torch.empty(0), torch.empty(0)
        self.replay: Callable[[], bool] | None = None

    def __call__(self, *arguments: Tensor) -> Tensor:
        """Return the function at `arguments`, which must have the same shapes at every call."""
        if not self.buffers:
            self.buffers = tuple(torch.empty_like(argument) for argument in arguments)
        for buffer, argument in zip(self.buffers, arguments, strict=True):
            buffer.copy_(argument)
        if self.calls == self.warm_up:
            self._record()
        elif self.replay is None:
            with nullcontext() if self.on_cpu else side_stream():
                self._run()
        elif self.replay():
            self.result, self.missed = self.recorded, 0
        else:
            self._miss()
        self.calls += 1
        return self.result

    def follow(self, phase: int) -> None:
        """Forget the recording in a new phase, in which the function does other operations."""
        if phase != self.phase:
            self.phase, self.calls, self.missed, self.recordings, self.replay = phase, 0, 0, 0, None

    def _run(self) -> None:
        self.result = self.function(*self.buffers)

    def _record(self) -> None:
        try:
            room = math.inf if self.asked else ROOM
            self.replay = Tape(self._run, room) if self.on_cpu else capture(self._run)
        except UnrecordableError as error:
            self._warn(f"this step is not replayed: {error}")
        self.recorded, self.missed, self.recordings = self.result, 0, self.recordings + 1

    def _miss(self) -> None:
        self.missed += 1
        if self.missed < PATIENCE:
            self._run()
        elif self.recordings < RECORDINGS:
            self._record()
        else:
            self.replay = None
            self._run()
            self._warn(
                f"this step is not replayed any more: it read different numbers in each of "
                f"{RECORDINGS} recordings"
            )

    def _warn(self, message: str) -> None:
        if self.asked:
            warnings.warn(message, stacklevel=3)


def is_known(parts: Iterable[object]) -> bool:
    """Return whether all parts are of gilib or torch: others may change plain numbers, or log something."""
    for part in parts:
        held = [own for own in getattr(part, "__dict__", {}).values() if callable(own)]
        called = [own.func if isinstance(own, functools.partial) else own for own in held]
        makers = {str(own.__module__).partition(".")[0] for own in (type(part), *called)}
        hooked = isinstance(part, nn.Module) and any(own._backward_hooks for own in part.parameters())
        if hooked or not (makers <= {"gilib", "torch"} or getattr(part, "reads_only", False)):
            return False
    return True


def check_replay(device: torch.device, processes: int, recordable: bool) -> None:
    """Raise unless steps can be recorded on this device, by one process and with this rule."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"replay=True needs data and network on a CPU or a CUDA device, not on {device}")
    if processes > 1:
        raise ValueError("replay=True is for one process: leave out parallel or replay")
    if not recordable:
        raise ValueError("replay=True needs a rule that can be recorded: see RunningRule.recordable")


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
    """Disable garbage collection within the block: a graph that is destroyed there spoils the recording."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
