"""Work on a Ray cluster: the same groups as tasks, accelerators counted, lost tasks run again."""

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
IN_FLIGHT = 256  # tasks that the cluster is given at a time


def import_ray() -> ModuleType:
    """Ray, an optional extra.

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
    """Within it: connected to the cluster at `RAY_ADDRESS`, or to one on this machine with `jobs` CPUs."""
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
    """Whether a machine of the cluster has a GPU."""
    return import_ray().cluster_resources().get("GPU", 0) > 0


def on_ray(work: Work, groups: Iterable[Group], gpus: float) -> Generator[Outcome, None, None]:
    """Groups as tasks of the cluster that this process is connected to, in the order in which they are done.

    Checkpoints lie in the cache of the machine that works on the group: with a cache that all machines share
    (`XDG_CACHE_HOME`), a task that is lost with its machine goes on elsewhere from its last checkpoint.

    Args:
        work: what to do; every machine needs gilib and the data that it uses.
        groups: of configurations.
        gpus: GPUs of a task, for example 0.5 for two tasks a GPU.

    Raises:
        RecordError: if a task was lost again and again.
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
