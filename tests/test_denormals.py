"""Denormal numbers are flushed while a model is trained, on all threads, and on no thread after it."""

import os
import subprocess
import sys

import pytest
import torch

import gilib
from gilib.denormals import denormals_flushed, flushed_denormals, openmp
from tests.support import normals, watched

X, Y = normals(20, 2, seed=1).float(), normals(20, 2, seed=2).float()

COUNT = """
import threading, torch, gilib
from gilib.denormals import denormals_flushed, flushed_by_workers, flushed_denormals
torch.set_num_threads(2)
small, size = torch.tensor(1e-40), 1 << 20

def left():
    return int((small.expand(size) * 1.0).count_nonzero()) / size
"""
WITHIN = """
with flushed_denormals():
    torch.ones(size).mul_(2.0)
print(left())
"""
WORKERS = """
print(left())
try:
    with flushed_by_workers():
        print(left())  # of this thread's half
        with flushed_denormals():
            print(left())
        raise KeyError
except KeyError:
    print(left())
"""
KEPT = """
torch.set_flush_denormal(True)
torch.ones(size).mul_(2.0)  # starts a worker that flushes for good
torch.set_flush_denormal(False)
print(left())
with flushed_by_workers(), flushed_denormals():
    print(left())
print(left())
"""
TRAINED = """
class Note(torch.nn.Module):
    seen = []

    def forward(self, x):
        self.seen.append(left())
        return x

x = torch.linspace(-1, 1, 10)[:, None]
net = gilib.Network(x, [gilib.Linear(1, 3), Note(), gilib.Linear(3, 1)])
before, after = len(Note.seen), left()
gilib.fit(net, gilib.Gaussian(0.1), x, x, steps=2, progress=False)
print(max(Note.seen[before:]), after, left())
"""

FORKED = """
import os
torch.ones(size).mul_(2.0)  # starts a worker
x = torch.linspace(-1, 1, 10)[:, None]
net = gilib.models.mlp(1, (3,), 1, posterior=gilib.Factorised())  # torch's own factorisations would wait
child = os.fork()
if not child:
    import signal
    signal.alarm(60)
    gilib.fit(net, gilib.Gaussian(0.1), x, x, steps=2, progress=False)
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


CHILD = """
import os
child = os.fork()
if not child:
    import signal
    signal.alarm(60)
    with flushed_by_workers(), flushed_denormals():
        torch.ones(size).mul_(2.0)  # starts workers of its own
    os._exit(int(left() < 1.0))
print(os.waitpid(child, 0)[1])
"""


def counted(program):
    """What it prints, in a process whose threads nothing has started yet."""
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", COUNT + program]  # of forks with threads
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert not done.stderr
    return [float(value) for value in done.stdout.split()]


def flushes():
    """Whether the processor can do it."""
    with flushed_denormals():
        return denormals_flushed()


@pytest.mark.skipif(not flushes(), reason="this processor cannot flush denormal numbers")
class TestDenormals:
    """They are flushed while a step is computed."""

    def test_training_flushes_both_ways_and_callbacks_do_not(self):
        net, seen = watched(denormals_flushed)
        outside = []
        settings = {"num_samples": 2, "progress": False}
        settings["callbacks"] = [lambda *_: outside.append(denormals_flushed())]
        gilib.fit(net, gilib.Gaussian(0.1), X, Y, steps=2, **settings)
        assert seen == [True] * 8 and outside == [False] * 2
        assert not denormals_flushed()

    @pytest.mark.parametrize("flushed", [True, False])
    def test_the_thread_is_left_as_it_was(self, flushed):
        torch.set_flush_denormal(flushed)
        try:
            with pytest.raises(KeyError), flushed_denormals():
                assert denormals_flushed() and float(torch.tensor(1e-38) * 0.1) == 0.0
                raise KeyError
            assert denormals_flushed() == flushed
        finally:
            torch.set_flush_denormal(False)

    def test_workers_that_are_started_within_are_left_as_they_were(self):
        """Two threads: a worker that had been started while flushing would flush to the end."""
        assert counted(WITHIN) == [1.0]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    @pytest.mark.parametrize("program", [FORKED, CHILD], ids=["with workers", "without"])
    def test_a_forked_process_waits_for_no_workers_and_is_left_as_it_was(self, program):
        assert counted(program) == [0.0]

    @pytest.mark.skipif(openmp() is None, reason="another library keeps the threads")
    @pytest.mark.parametrize(
        ("program", "shares"),
        [(WORKERS, [1.0, 0.5, 0.0, 1.0]), (KEPT, [0.5, 0.0, 0.5]), (TRAINED, [0.0, 1.0, 1.0])],
        ids=["workers", "kept", "trained"],
    )
    def test_workers_flush_within_and_are_left_as_they_were(self, program, shares):
        assert counted(program) == shares
