"""Recorded steps: a step is recorded once and then replayed, and the host is spared.

Small networks keep a GPU waiting for the host, and a processor busy with Python. A step is a pure function of
minibatch, noise and weight, so that it can be recorded with buffers in their place: on CUDA as a graph, on
the CPU as a tape of operations. Batches, noise and the trace stay outside.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from gilib.training.gradients.graph import capture, side_stream
from gilib.training.gradients.tape import Tape, UnrecordableError

WARM_UP = 3  # calls before the recording, in which libraries make their plans and Adam its moments
PATIENCE = 10  # calls in a row that decide otherwise than the recording, after which there is another one
RECORDINGS = 5  # at most


class Replay:
    """A function of tensors that runs a few times, is then recorded, and is replayed from there on.

    Args:
        function: does the same work whatever the values, and reads and writes the same tensors at every call:
            what changes must come in as an argument, on the device. Its result is to be read before the next
            call.
        device: of the arguments, with CUDA or a CPU.

    On the CPU the function may decide by values, as whether a matrix had a factor: where it would decide
    otherwise than when it was recorded, it is called, and recorded anew if that goes on.
    """

    def __init__(self, function: Callable[..., Tensor], device: torch.device):
        """Wait for the first call."""
        self.function, self.on_cpu = function, device.type == "cpu"
        self.calls, self.missed, self.recordings = 0, 0, 0
        self.buffers: tuple[Tensor, ...] = ()
        self.result, self.recorded = torch.empty(0), torch.empty(0)
        self.replay: Callable[[], bool] | None = None

    def __call__(self, *arguments: Tensor) -> Tensor:
        """The function at `arguments`, tensors of the same shapes at every call."""
        if not self.buffers:
            self.buffers = tuple(torch.empty_like(argument) for argument in arguments)
        for buffer, argument in zip(self.buffers, arguments, strict=True):
            buffer.copy_(argument)
        if self.calls == WARM_UP:
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

    def _run(self) -> None:
        self.result = self.function(*self.buffers)

    def _record(self) -> None:
        """One call, which is kept; where it cannot be, the function is called as before."""
        try:
            self.replay = Tape(self._run) if self.on_cpu else capture(self._run)
        except UnrecordableError as error:
            warnings.warn(f"this step is not replayed: {error}", stacklevel=2)
        self.recorded, self.missed, self.recordings = self.result, 0, self.recordings + 1

    def _miss(self) -> None:
        """One call where the step decides otherwise than when it was recorded."""
        self.missed += 1
        if self.missed < PATIENCE:
            self._run()
        elif self.recordings < RECORDINGS:
            self._record()
        else:
            self.replay = None
            self._run()
            warnings.warn(
                f"this step is not replayed any more: it reads numbers that were others in {RECORDINGS} "
                "recordings",
                stacklevel=2,
            )


def check_replay(device: torch.device, processes: int, recordable: bool) -> None:
    """Raise unless a step can be recorded."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"replay=True needs data and network on a CPU or a CUDA device, they are on {device}"
        )
    if processes > 1:
        raise ValueError("replay=True is for one process: leave out parallel or replay")
    if not recordable:
        raise ValueError("replay=True needs a rule that can be recorded: see RunningRule.recordable")
