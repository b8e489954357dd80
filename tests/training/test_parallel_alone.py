"""`DataParallel` by itself: without a group, in a group of one, and in the script of its docstring."""

import inspect
import os
import re
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import distributed

from gilib.training import DataParallel, Speed
from gilib.training.gradients import parallel
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


@pytest.mark.slow
def test_the_script_of_the_docstring(tmp_path):
    """Runs as it stands, and leaves the bar to one process."""
    text = inspect.getdoc(parallel.DataParallel)  # without indentation, which Python 3.13 does not keep
    block = re.search(r"code-block:: python\n\n(.*?)\n\nOn GPUs", text, re.DOTALL)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(block[1]))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD}"]
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(
        [*command, str(script)], env=os.environ | settings, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count("| 0/20 ") == 1
