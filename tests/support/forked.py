"""Processes that begin in a moment: a server imports once what they need, and forks each of them."""

import multiprocessing
import os
import runpy
import sys
import time

import pytest  # noqa: F401
import torch._dynamo  # what the first optimiser of a process opens

import experiments.__main__  # noqa: F401

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])


def start(work, *arguments, folder=None):
    """Start a function of a module in a folder, with the present environment, on one thread."""
    process = CONTEXT.Process(target=_begin, args=(dict(os.environ), folder, work, arguments))
    process.start()
    return process


def run(work, *arguments, folder=None):
    """Wait for it to end, at most five minutes; its exit status, negative if a signal has ended it."""
    process = start(work, *arguments, folder=folder)
    process.join(300.0)
    return process.exitcode


def wait_until(condition, seconds=120.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def script(path, *arguments):
    """Run a program as the interpreter would."""
    sys.argv = [str(path), *map(str, arguments)]
    runpy.run_path(str(path), run_name="__main__")


def _begin(environment, folder, work, arguments):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder or os.curdir)
    torch.set_num_threads(1)
    work(*arguments)
