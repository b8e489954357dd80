"""Files that are replaced in one step: whoever reads one finds the old content or the new, never half."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

ENDING = ".new"  # of content that is not in place yet


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream to write and to read, whose content takes the place of a file when the block ends.

    The content is on the disk before it has the file's name. An error within the block leaves the file as it
    was and nothing beside it; a process that is killed may leave a hidden file, see `sweep`. The folder is
    made; permissions of an older file are kept.

    Args:
        path: the file.

    Raises:
        OSError: if it cannot be written, for example because the disk is full, or is a folder.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: give the path of a file")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}{ENDING}")
    try:
        with part.open("x+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(target, part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    _sync(target.parent)


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


def sweep(path: str | os.PathLike[str]) -> None:
    """Remove what killed processes left beside a file; only where nobody else is writing it."""
    target = Path(path)
    for part in target.parent.iterdir():
        if part.name.startswith(f".{target.name}.") and part.name.endswith(ENDING):
            part.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; Windows has no way to ask for it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
