"""The runner keeps its memory: a step that repeats touches no new pages."""

import os
import platform
import subprocess
import sys
from multiprocessing import get_context
from unittest.mock import Mock

import pytest

from experiments import __main__ as program
from experiments.runner import local, memory
from experiments.runner.memory import keep_memory

GLIBC = platform.libc_ver()[0] == "glibc"
PAGE_FAULTS = """
import resource, runpy, sys

def step():
    return [b"1" * 2**23 for _ in range(6)]

def faults():
    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
assert runpy.run_path(sys.argv[1])["keep_memory"]()
print(given_back, faults())
"""


@pytest.mark.skipif(not GLIBC, reason="there is no glibc to ask")
def test_a_step_that_repeats_has_no_page_faults_where_memory_is_kept():
    """In a process whose allocator maps every block anew, and would not learn to keep some of them."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    command = [sys.executable, "-c", PAGE_FAULTS, memory.__file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    given_back, kept = map(int, done.stdout.split())
    assert kept < 100 and 20 * kept < given_back, (kept, given_back)


@pytest.mark.parametrize(("system", "library"), [("darwin", None), ("linux", lambda name: object())])
def test_other_systems_and_libraries_without_mallopt_are_left_alone(monkeypatch, system, library):
    monkeypatch.setattr(memory.sys, "platform", system)
    monkeypatch.setattr(memory.ctypes, "CDLL", library)
    assert not keep_memory()


def test_an_older_glibc_that_refuses_large_blocks_is_asked_for_smaller_ones(monkeypatch):
    asked = []

    class Library:
        def mallopt(self, parameter, value):
            asked.append((parameter, value))
            return int(parameter != memory.MMAP_THRESHOLD or value <= 2**25)

    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: Library())
    assert keep_memory()
    assert asked[-2:] == [(memory.MMAP_THRESHOLD, 2**30), (memory.MMAP_THRESHOLD, 2**25)]


def test_program_and_workers_ask(monkeypatch, capsys):
    asked = []
    for module in (program, local):
        monkeypatch.setattr(module, "keep_memory", lambda module=module: asked.append(module))
    program.main(["list"])
    monkeypatch.setattr(local, "signal", Mock())
    monkeypatch.setattr(local, "threading", Mock())
    local.prepare(0, get_context("spawn").Event())
    assert asked == [program, local]
