"""Files that are replaced in one step: whoever reads one finds the old content or the new, never half."""

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
except ImportError:  # Windows, where nothing is swept
    fcntl = None  # type: ignore[assignment]

ENDING = ".new"  # of content that is not in place yet


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BufferedRandom]:
    """A stream to write and to read, whose content takes the place of a file when the block ends.

    The content is on the disk before it has the file's name. An error within the block leaves the file as it
    was and nothing beside it; a process that is killed may leave a hidden file, which the next one that
    replaces the same file removes. The folder is made. A symbolic link stays, what it points to is replaced.
    Permissions of an older file are kept, and its owner where the system allows that.

    Args:
        path: the file.

    Raises:
        OSError: if it cannot be written, for example because the disk is full, or is a folder, a device or a
            pipe.
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
    """Raise where `replacing` would, before there is anything to write.

    Raises:
        OSError: likewise.
    """
    target, _ = _resolve(path)
    try:
        with _part(target):
            pass
    except OSError as error:
        raise OSError(
            f"cannot write {target} ({error}): give the path of a file in a folder that you may write to"
        ) from error


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Give a file this content, see `replacing`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace_file(Path(folder) / "a" / "b.txt", b"whole")
    ...     (Path(folder) / "a" / "b.txt").read_text(), len(os.listdir(Path(folder) / "a"))
    ('whole', 1)
    """
    with replacing(path) as stream:
        write_all(stream.fileno(), content)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of the content, however little of it the system takes at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _resolve(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """The file that a path leads to, and what the system knows of it; None if there is none yet."""
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
    """A new hidden file beside another, gone at the end unless it was renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    part, held = _locked(target)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        held.close()


def _locked(target: Path) -> tuple[Path, IO[bytes]]:
    """A new hidden file and what holds its lock: the system frees it when this process ends in any way."""
    while True:
        part = target.with_name(f".{target.name}.{secrets.token_hex(8)}{ENDING}")
        held = part.open("xb")
        if fcntl is None:
            held.close()  # Windows renames no open file
            return part, held
        with contextlib.suppress(OSError):  # file systems without locks, where nothing is swept either
            fcntl.flock(held, fcntl.LOCK_EX)
        if part.exists():  # else it was swept between these lines
            return part, held
        held.close()


def _sweep(target: Path) -> None:
    """Remove what killed processes left beside a file: hidden files whose lock is free."""
    if fcntl is None:
        return
    leftover = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}{re.escape(ENDING)}")
    for part in filter(lambda path: leftover.fullmatch(path.name), target.parent.iterdir()):
        with contextlib.suppress(OSError), part.open("r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; Windows has no way to ask for it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
