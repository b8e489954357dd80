"""Claims: locks which ensure that, of several runners with one cache, only one works on a group."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from experiments.runner.identity import identity
from experiments.runner.work import Group, checkpoints, group_identity


class Claims:
    """An iterator over the groups that this runner takes; each is locked in the cache until it is released.

    A group that another runner holds is skipped and tried again after the others. A group that another runner
    has recorded meanwhile is left out. The system frees the locks of a killed process.

    Args:
        name: name of the experiment.
        groups: groups of configurations.
        recorded: returns the identities of everything that is recorded by now.

    Attributes:
        left: groups that other runners still held when all others were done.
    """

    def __init__(self, name: str, groups: Sequence[Group], recorded: Callable[[], Container[str]]) -> None:
        """Start without any lock."""
        self.left: list[Group] = list(groups)
        self._name, self._recorded = name, recorded
        self._locks: dict[Group, FileLock] = {}

    def __iter__(self) -> Iterator[Group]:
        """Yield claimed groups until other runners hold all that are left."""
        waiting: list[Group] = []
        while self.left != waiting:
            waiting, self.left = self.left, []
            for group in waiting:
                if not self._claim(group):
                    self.left.append(group)
                elif self.open([group]):
                    yield group
                else:
                    self.release(group)

    def open(self, groups: Sequence[Group]) -> int:
        """Return how many configurations of the groups are not recorded by now."""
        done = self._recorded()
        return sum(identity(self._name, config) not in done for group in groups for config in group)

    def _claim(self, group: Group) -> bool:
        lock = FileLock(checkpoints(self._name) / f"{group_identity(self._name, group)}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        self._locks[group] = lock
        return True

    def release(self, group: Group) -> None:
        """Release a group; if it is recorded, its checkpoints must be removed before."""
        lock = self._locks.pop(group)
        with contextlib.suppress(OSError):  # Windows does not delete open files
            Path(lock.lock_file).unlink()
        lock.release()

    def close(self) -> None:
        """Release all groups."""
        for group in list(self._locks):
            self.release(group)
