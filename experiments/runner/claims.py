"""Claims: of several runners with one cache, each group of configurations is worked on by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from experiments.runner.identity import identity
from experiments.runner.work import Group, checkpoints, group_identity


class Claims:
    """The groups that this runner takes, one by one, each under a lock in the cache until it is released.

    A group that another runner holds is passed over, and asked for again after the others; one that another
    runner has recorded meanwhile is left out. The locks of a process that is killed are free again.

    Args:
        name: of the experiment.
        groups: of configurations.
        recorded: the identities of what is recorded by now.

    Attributes:
        left: the groups that other runners still held when there was nothing else to take.
    """

    def __init__(self, name: str, groups: Sequence[Group], recorded: Callable[[], Container[str]]) -> None:
        """All groups are left."""
        self.left: list[Group] = list(groups)
        self._name, self._recorded = name, recorded
        self._locks: dict[Group, FileLock] = {}

    def __iter__(self) -> Iterator[Group]:
        """Claimed groups, until others hold all that are left."""
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
        """How many configurations of groups are not recorded by now."""
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
        """Let others have a group; its checkpoints are removed before, where it is recorded."""
        lock = self._locks.pop(group)
        with contextlib.suppress(OSError):  # Windows keeps what is open
            Path(lock.lock_file).unlink()
        lock.release()

    def close(self) -> None:
        """Let others have all that is held."""
        for group in list(self._locks):
            self.release(group)
