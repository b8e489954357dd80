"""Writing records: under a lock, in one step: a kill at any moment leaves the old file or the new."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from gilib.experiments.runner.identity import record_identity
from gilib.experiments.runner.records import (
    SCHEMA,
    Record,
    RecordError,
    parse_records,
    refuse_foreign,
    results_file,
)

PROBE_BYTES = 1 << 16  # what must fit on the disk before any work starts


def append(name: str, records: Sequence[Record], kind: type | None = None) -> list[Record]:
    """Append records to `results/<name>.jsonl`, all of them or none; what is recorded already is left out.

    The file is read and replaced under an advisory lock: two runners that did the same work record it once.
    It is replaced, not extended, because a killed process may leave a write of several pages half done.

    Args:
        name: the experiment.
        records: what to add.
        kind: the class of the experiment's configurations, by which a record is known whatever its id was
            computed from; None: by its id.

    Returns:
        Those that were added.

    Raises:
        RecordError: if the file is damaged or cannot be written; it is then as it was.
    """
    path = results_file(name).resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            content = path.read_bytes()
            kept = parse_records(path, content)
            known = {_known_by(record, kind) for record in kept}
            new = [record for record in records if _known_by(record, kind) not in known]
            if new:
                gap = b"" if content.endswith(b"\n") or not content else b"\n"
                content += gap + b"".join(_line(record) for record in new)
                refuse_foreign(path, parse_records(path, content), name)
                _replace(path, content)
            return new
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error}") from error


def check_writable(name: str, folder: Path) -> None:
    """Raise before any work starts if records, or checkpoints in `folder`, could not be written.

    Raises:
        RecordError: with the reason, and what to set.
    """
    path = results_file(name).resolve()
    held = path.stat().st_size if path.exists() else 0  # a file is replaced: for a moment there are two of it
    _probe(path.parent, "GILIB_RESULTS", held)
    _probe(folder, "XDG_CACHE_HOME")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise RecordError(f"cannot write {path}: set GILIB_RESULTS to another folder")


def _probe(folder: Path, variable: str, held: int = 0) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as stream:
            _write(stream.fileno(), bytes(held + PROBE_BYTES))
    except OSError as error:
        raise RecordError(
            f"cannot write to {folder} ({error}): make room, or set {variable} to another folder"
        ) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, created if there is none; a file that stays empty is removed again."""
    descriptor = _open_locked(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path.stat().st_size == 0:
                path.unlink()
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    """A descriptor that holds the lock of the file that has this name now, not of one that it replaced."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """Give a locked file new content, on the disk when this returns."""
    temporary = path.with_name(f".{path.name}.new")  # one name: what a killed process left is overwritten
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.fchmod(descriptor, path.stat().st_mode)
            _write(descriptor, content)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _write(descriptor: int, content: bytes) -> None:
    """Write all of the content, and wait until it is on the disk."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _known_by(record: Record, kind: type | None) -> str:
    return str(record["id"]) if kind is None else record_identity(record, kind)


def _line(record: Record) -> bytes:
    return json.dumps({"schema": SCHEMA, **record}, allow_nan=False).encode() + b"\n"
