"""Write records atomically and under a lock: after a kill, the old file or the new one remains."""

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

PROBE_BYTES = 1 << 16  # free space that is required before any work starts


def append(name: str, records: Sequence[Record], kind: type | None = None) -> list[Record]:
    """Append records to `results/<name>.jsonl`, all or none, except those that are recorded already.

    The file is read and replaced under a lock on a hidden file beside it, so two runners that did the same
    work record it once. The system frees the lock of a killed process. The file is replaced rather than
    extended, because a killed process may leave a long write incomplete.

    Args:
        name: name of the experiment.
        records: records to add.
        kind: class of the experiment's configurations, which every record must fit; None: not checked.

    Returns:
        The records that were added.

    Raises:
        RecordError: if the file is damaged or cannot be written; it is not changed then.
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
    """Check, before any work starts, that records and checkpoints in `folder` can be written.

    Raises:
        RecordError: if not; the message has the reason and a remedy.
    """
    path = results_file(name).resolve()
    held = path.stat().st_size if path.exists() else 0  # old and new file exist together for a moment
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
