"""Writing records: under a lock, in one step: a kill at any moment leaves the old file or the new."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from experiments.runner.records import (
    SCHEMA,
    Record,
    RecordError,
    parse_records,
    refuse_foreign,
    results_file,
)
from gilib.files import replace_file, write_all

PROBE_BYTES = 1 << 16  # what must fit on the disk before any work starts


def append(name: str, records: Sequence[Record], kind: type | None = None) -> list[Record]:
    """Append records to `results/<name>.jsonl`, all of them or none; what is recorded already is left out.

    The file is read and replaced under a lock, the hidden file beside it: two runners that did the same work
    record it once. The lock of a process that is killed is free again.
    It is replaced, not extended, because a killed process may leave a write of several pages half done.

    Args:
        name: the experiment.
        records: what to add.
        kind: the class of the experiment's configurations, which every record must fit; None: any fits.

    Returns:
        Those that were added.

    Raises:
        RecordError: if the file is damaged or cannot be written; it is then as it was.
    """
    path = results_file(name).resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            content = path.read_bytes() if path.exists() else b""
            kept = parse_records(path, content)
            known = {record["id"] for record in kept}
            new = [record for record in records if record["id"] not in known]
            if new:
                gap = b"" if content.endswith(b"\n") or not content else b"\n"
                content += gap + b"".join(_line(record) for record in new)
                refuse_foreign(path, parse_records(path, content), name, kind)
                replace_file(path, content)
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
            write_all(stream.fileno(), bytes(held + PROBE_BYTES))
            os.fsync(stream.fileno())
    except OSError as error:
        raise RecordError(
            f"cannot write to {folder} ({error}): make room, or set {variable} to another folder"
        ) from error


def _line(record: Record) -> bytes:
    return json.dumps({"schema": SCHEMA, **record}, allow_nan=False).encode() + b"\n"
