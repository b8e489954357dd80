"""`DataParallel` by itself: without a group, in a group of one, and in the script of its docstring."""

import contextlib
import inspect
import os
import re
import socket
import textwrap

import pytest
import torch
from torch import distributed

from gilib.training import DataParallel, Speed
from gilib.training.gradients import parallel
from tests.support import forked
from tests.support.sharing import WORLD, fit, mlp


def test_without_a_group():
    with pytest.raises(RuntimeError, match=r"call torch.distributed.init_process_group\(\) first"):
        DataParallel()


def test_without_torch_distributed(monkeypatch):
    monkeypatch.setattr(distributed, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="this build of torch has no torch.distributed"):
        DataParallel()


@pytest.fixture
def one(tmp_path):
    """A group of one process."""
    distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield DataParallel()
    distributed.destroy_process_group()


def test_another_backend(one, monkeypatch):
    monkeypatch.setattr(distributed, "get_backend_config", lambda group: "cuda:nccl")
    with pytest.raises(ValueError, match=r"on cpu, for which the process group has no backend .*cuda:nccl"):
        fit(mlp(), speed=Speed(parallel=one))


def test_one_process_shares_with_itself(one):
    together, alone = fit(mlp(), batch_size=6, speed=Speed(parallel=one)), fit(mlp(), batch_size=6)
    assert torch.equal(together["elbo"], alone["elbo"])


def run_script(path, rank, port):
    """As `torchrun` runs it, in one of several processes."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with open(f"{rank}.err", "w") as stream, contextlib.redirect_stderr(stream):
        forked.script(path)


@pytest.mark.slow
def test_the_script_of_the_docstring(tmp_path):
    """Runs as it stands, and leaves the bar to one process."""
    text = inspect.getdoc(parallel.DataParallel)  # without indentation, which Python 3.13 does not keep
    block = re.search(r"code-block:: python\n\n(.*?)\n\nOn GPUs", text, re.DOTALL)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(block[1]))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    both = [forked.start(run_script, script, rank, port, folder=tmp_path) for rank in range(WORLD)]
    for process in both:
        process.join(300.0)
        assert process.exitcode == 0
    bars = [(tmp_path / f"{rank}.err").read_text().count("| 0/20 ") for rank in range(WORLD)]
    assert bars == [1, 0]
