"""Run groups as tasks on a Ray cluster, which counts accelerators and repeats lost tasks."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Generator, Iterable, Iterator
from types import ModuleType

from experiments.runner.memory import keep_memory
from experiments.runner.records import RecordError
from experiments.runner.work import Group, Outcome, Work
from gilib.optional import INSTALL

RETRIES = 3  # of a task whose worker or machine was lost
IN_FLIGHT = 256  # tasks that are submitted to the cluster at a time


def import_ray() -> ModuleType:
    """Import Ray, an optional extra.

    Raises:
        RecordError: if it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        install = INSTALL.format(extra="cluster")
        raise RecordError(f"--where ray needs Ray ({error}): {install} in the checkout of gilib") from None
    return ray


@contextlib.contextmanager
def connected(jobs: int) -> Iterator[None]:
    """Connect to the cluster at `RAY_ADDRESS`, or to one of `jobs` CPUs here, within this context."""
    ray = import_ray()
    if ray.is_initialized():
        yield
        return
    if os.environ.get("RAY_ADDRESS"):
        ray.init(address="auto", log_to_driver=False)
    else:
        ray.init(address="local", num_cpus=jobs, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def has_accelerators() -> bool:
    """Return whether a machine of the cluster has a GPU."""
    return import_ray().cluster_resources().get("GPU", 0) > 0


def on_ray(work: Work, groups: Iterable[Group], gpus: float) -> Generator[Outcome, None, None]:
    """Run groups as tasks of the connected cluster, and yield outcomes in the order of completion.

    Checkpoints lie in the cache of the machine that works on a group. If all machines share a cache
    (`XDG_CACHE_HOME`), a task that is lost with its machine resumes elsewhere from its last checkpoint.

    Args:
        work: the work on a group; every machine needs gilib and the data.
        groups: groups of configurations.
        gpus: number of GPUs for a task, for example 0.5 for two tasks per GPU.

    Raises:
        RecordError: if a task was lost repeatedly.
    """
    ray = import_ray()

    def do(group: Group) -> Outcome:
        keep_memory()
        return work(group)

    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(do)
    waiting = iter(groups)
    running = [task.remote(group) for group in itertools.islice(waiting, IN_FLIGHT)]
    try:
        while running:
            done, running = ray.wait(running, num_returns=1)
            running += [task.remote(group) for group in itertools.islice(waiting, 1)]
            yield ray.get(done[0])
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise RecordError(
            f"a task was lost {RETRIES + 1} times: what was recorded is kept; run again ({error})"
        ) from error
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
