"""Replace files atomically: a reader finds the old content or the new one, never a part of it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows, where leftovers are not removed
    fcntl = None  # type: ignore[assignment]

ENDING = ".new"  # ending of a file that is not in place yet


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BufferedRandom]:
    """Open a stream for writing and reading, whose content replaces a file when the block ends.

    The content is on the disk before it gets the file's name. After an error within the block the old file is
    unchanged and no other remains; a killed process may leave a hidden file, which the next replacement
    removes. Missing folders are created, a symbolic link's target is replaced, and the old file's permissions
    are kept, and its owner if the system allows it.
    """
    target, old = _resolve(path)
    with _part(target) as part:
        with part.open("r+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if old is not None:
            if os.name == "posix":
                with contextlib.suppress(OSError):
                    os.chown(part, old.st_uid, old.st_gid)
            part.chmod(stat.S_IMODE(old.st_mode))
        os.replace(part, target)
    _sync(target.parent)


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Check that `replacing` can write a file, before there is anything to write."""
    target, _ = _resolve(path)
    try:
        with _part(target):
            pass
    except OSError as error:
        raise OSError(
            f"cannot write {target} ({error}): give the path of a file in a folder that you may write to"
        ) from error


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace the content of a file, as `replacing` does."""
    with replacing(path) as stream:
        write_all(stream.fileno(), content)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of the content, in as many calls as the system needs."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _resolve(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """Return the file that a path leads to, and its status, or None if it does not exist."""
    target = Path(os.path.realpath(path))
    try:
        old = target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return target, None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(f"{target} is a folder: give the path of a file")
    if not stat.S_ISREG(old.st_mode):
        raise OSError(f"{target} is a device, a pipe or the like: give the path of a file")
    return target, old


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """Create a hidden file beside another, and remove it at the end unless it was renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    part, held = _locked(target)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        held.close()


def _locked(target: Path) -> tuple[Path, IO[bytes]]:
    """Create a hidden file and lock it; the system frees the lock whenever this process ends."""
    while True:
        part = target.with_name(f".{target.name}.{secrets.token_hex(8)}{ENDING}")
        held = part.open("xb")
        if fcntl is None:
            held.close()  # Windows renames no open file
            return part, held
        with contextlib.suppress(OSError):  # file systems without locks, where leftovers are not removed
            fcntl.flock(held, fcntl.LOCK_EX)
        if part.exists():  # another process may have removed it before it was locked
            return part, held
        held.close()


def _sweep(target: Path) -> None:
    """Remove hidden files that killed processes left beside a file: those whose lock is free."""
    if fcntl is None:
        return
    leftover = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}{re.escape(ENDING)}")
    for part in filter(lambda path: leftover.fullmatch(path.name), target.parent.iterdir()):
        with contextlib.suppress(OSError), part.open("r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, which is not possible on Windows."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
