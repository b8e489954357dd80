"""Data parallelism: several processes train one network, each on its share of every minibatch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed

from gilib.linalg import FactorisationError


class OneProcess:
    """A process that trains alone; the interface through which `gilib.fit` talks to other processes."""

    rank, size = 0, 1

    def shard(self, values: Tensor, axis: int) -> Tensor:
        """Return this process's part of `values` along `axis`."""
        return values

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums of tensors over the processes."""
        return list(tensors)

    @contextmanager
    def propagate_failures(self, device: torch.device) -> Iterator[None]:
        """Raise on every process if a factorisation inside the block fails on one of them."""
        yield

    def any(self, flag: bool, device: torch.device) -> bool:
        """Return whether `flag` is true on some process."""
        return flag

    def wait(self, device: torch.device) -> None:
        """Wait for all processes."""


class DataParallel(OneProcess):
    """K processes that train one network as a single process would, on K times as many points at a time.

    All processes hold the same data, parameters and inducing points. They draw the same functions, from the
    same noise, and process k evaluates them at its share B_k of the points of a minibatch B:

        L = (N/|B|) Σ_b log P(y_b | f(x_b)) + log P - log Q = Σ_k (|B_k|/|B|) L_k,

    where L_k is the bound for the minibatch B_k. One message per step and dtype sums the weighted bounds and
    their gradients. So parameters stay equal on all processes to the last bit, and equal to those of a single
    process up to rounding. The work of drawing is repeated on every process.

    Process 0 shows the progress bar and writes checkpoints, on storage that all processes can read. A resumed
    training may have another number of processes. A failed factorisation raises on all of them.

    Args:
        group: a process group of `torch.distributed`; None: all processes.

    Attributes:
        rank: number of this process, counted from 0.
        size: K, the number of processes.

    Raises:
        RuntimeError: if torch.distributed is missing or not initialised.

    Example, a file `train.py` started by `torchrun --nproc-per-node 2 train.py`:

    .. code-block:: python

        import torch
        import gilib

        torch.distributed.init_process_group()  # gloo for CPUs, NCCL for GPUs
        generator = torch.Generator().manual_seed(0)  # the same data and parameters everywhere
        x = torch.randn(100, 1, generator=generator)
        net = gilib.models.mlp(1, (20,), 1, inducing_points=x[:10], generator=generator)
        speed = gilib.training.Speed(parallel=gilib.training.DataParallel())
        gilib.fit(net, gilib.Gaussian(0.1), x, x.sin(), steps=20, batch_size=50, speed=speed)
        torch.distributed.destroy_process_group()

    On GPUs, each process first chooses its own GPU with `torch.cuda.set_device`, by the number in the
    environment variable `LOCAL_RANK`, and moves data and network there.
    """

    def __init__(self, group: Any = None):
        if not distributed.is_available():
            raise RuntimeError("this build of torch has no torch.distributed: install one that has it")
        if not distributed.is_initialized():
            raise RuntimeError(
                "there is no process group: call torch.distributed.init_process_group() first, in a script "
                "started by torchrun --nproc-per-node K"
            )
        self.group = group
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    def check(self, device: torch.device, points: int) -> None:
        """Raise unless the group supports the device, and a step has a point for every process."""
        backends = distributed.get_backend_config(self.group)  # "cpu:gloo,cuda:nccl"
        if device.type not in [backend.split(":")[0] for backend in backends.split(",")]:
            raise ValueError(
                f"the data are on {device}, for which the process group has no backend (it has {backends}): "
                "call torch.distributed.init_process_group() without one"
            )
        if points < self.size:
            raise ValueError(
                f"a step of {points} points is too small for {self.size} processes: every one needs a point"
            )

    def check_same(self, described: Mapping[str, str], device: torch.device) -> None:
        """Raise, on every process, unless all have described these parts of the training in the same way."""
        digests = [hashlib.sha256(value.encode()).digest()[:7] for value in described.values()]
        own = torch.tensor([int.from_bytes(digest) for digest in digests], device=device)
        everyone = [torch.empty_like(own) for _ in range(self.size)]
        distributed.all_gather(everyone, own, group=self.group)
        for column, name in enumerate(described):
            odd = [rank for rank, other in enumerate(everyone) if other[column] != everyone[0][column]]
            if odd:
                raise ValueError(
                    f"processes {odd} differ from process 0 in their {name}: give all the same data, "
                    "arguments, seeds and checkpoint; fit itself splits the minibatches"
                )

    def shard(self, values: Tensor, axis: int) -> Tensor:
        """Return one of K consecutive parts, whose sizes differ by at most one point."""
        return values.tensor_split(self.size, axis)[self.rank]

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        sums = list(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in sums):
            places = [k for k, tensor in enumerate(sums) if tensor.dtype == dtype]
            bucket = torch.cat([sums[k].reshape(-1) for k in places])
            distributed.all_reduce(bucket, group=self.group)
            for k, part in zip(places, bucket.split([sums[k].numel() for k in places]), strict=True):
                sums[k] = part.view(sums[k].shape)
        return sums

    @contextmanager
    def propagate_failures(self, device: torch.device) -> Iterator[None]:
        failure = None  # on an accelerator a failure is NaN, which reaches all processes through the sums
        try:
            yield
        except FactorisationError as error:
            failure = error
        if device.type == "cpu" and self.any(failure is not None, device) and failure is None:
            failure = FactorisationError("a matrix of another process", "its error says which")
        if failure is not None:
            raise failure

    def any(self, flag: bool, device: torch.device) -> bool:
        count = torch.tensor(int(flag), device=device)
        distributed.all_reduce(count, group=self.group)
        return bool(count)

    def wait(self, device: torch.device) -> None:
        self.any(False, device)
