"""Run groups on this machine: in this process, or in several processes with one thread each."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event

from experiments.runner.memory import keep_memory
from experiments.runner.records import RecordError
from experiments.runner.work import Group, Outcome, Work

WATCH_SECONDS = 0.2  # a worker exits within this time after the process that started it


def in_process(work: Work, groups: Iterable[Group]) -> Generator[Outcome, None, None]:
    """Run the groups one by one in this process, and yield their outcomes."""
    yield from map(work, groups)


def in_processes(work: Work, groups: Iterable[Group], jobs: int) -> Generator[Outcome, None, None]:
    """Run groups in worker processes, and yield outcomes in the order of completion.

    A group is taken when a worker is free. Workers exit with this process, and with this generator if it is
    closed early or fails.

    Raises:
        RecordError: if a worker was killed, for example because memory ran out.
    """
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=prepare, initargs=(os.getpid(), stop))
    waiting = iter(groups)
    try:
        running = {pool.submit(work, group) for group in itertools.islice(waiting, jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            running |= {pool.submit(work, group) for group in itertools.islice(waiting, len(done))}
            for future in done:
                yield future.result()
    except BrokenProcessPool as error:
        raise RecordError(
            "a worker process was killed (did memory run out?): what was recorded is kept; "
            "run again, with fewer --jobs"
        ) from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def prepare(parent: int, stop: Event) -> None:
    """Set up a worker, which keeps memory, ignores interrupts, and exits with its parent or on request."""
    keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent, stop), daemon=True).start()


def _watch(parent: int, stop: Event) -> None:
    while os.getppid() == parent and not stop.is_set():
        time.sleep(WATCH_SECONDS)
    os._exit(1)
