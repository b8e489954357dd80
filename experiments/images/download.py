"""Download a file of a data set: complete and checked, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from gilib.data import DataError
from gilib.files import replacing

TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 16
MOST_BYTES = 1 << 28  # the largest download that is accepted; CIFAR-10, the largest one known, has 170 MB


class DownloadError(DataError):
    """A file could not be downloaded completely from its official address."""


def fetch(url: str, target: Path, check: Callable[[bytes], object]) -> None:
    """Download `url` to `target` with a progress bar; `target` appears complete and checked, or not at all.

    Args:
        url: official address of the file.
        target: path of the file; its folder is created.
        check: receives the complete content and raises an error if it is wrong.
    """
    with ExitStack() as stack:
        try:
            sink = stack.enter_context(replacing(target))
        except OSError as error:
            raise DataError(
                f"cannot write to {target.parent} ({error}): set the environment variable GILIB_DATA to a "
                "folder that you may write to"
            ) from error
        _download(url, sink, target)
        sink.seek(0)
        check(sink.read())


def _download(url: str, sink: IO[bytes], target: Path) -> None:
    """Copy `url` to `sink`; turn every failure into a `DownloadError` that says what to do."""
    from http.client import HTTPException
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            problem = _copy(response, sink, target.parent.name)
    except (OSError, HTTPException) as error:
        raise DownloadError(_advice(url, target, str(error) or repr(error))) from error
    if problem:
        raise DownloadError(_advice(url, target, problem))


def _copy(response: Any, sink: IO[bytes], label: str) -> str:
    """Copy a response to `sink` with a progress bar; return a problem with its length, or an empty string."""
    from tqdm import tqdm

    length = response.headers.get("Content-Length")
    if length and not length.isdecimal():
        return f"Content-Length is {length!r}, wanted a number of bytes"
    wanted = int(length) if length else None
    received = 0
    with tqdm(total=wanted, unit="B", unit_scale=True, desc=f"fetching {label}") as bar:
        while chunk := response.read(CHUNK_BYTES):
            received += len(chunk)
            if max(received, wanted or 0) > MOST_BYTES:
                return f"{wanted or received} bytes or more, at most {MOST_BYTES} are taken"
            sink.write(chunk)
            bar.update(len(chunk))
    return f"incomplete answer, {received} of {wanted} bytes" if wanted not in (None, received) else ""


def _advice(url: str, target: Path, problem: str) -> str:
    return (
        f"could not fetch {url}: {problem}. Try again with a network, or save that file by other "
        f"means as {target}, or set the environment variable GILIB_DATA to a folder that has it"
    )
