"""Find data files in the package or on this machine, and download those that are missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from gilib.files import replacing

TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 16
MOST_BYTES = 1 << 28  # the largest download that is accepted; CIFAR-10, the largest one known, has 170 MB
SHIPPED = "the copy that ships with gilib"  # its name in error messages


class DataError(RuntimeError):
    """A data set could not be found, read or verified; the message says what to do."""


class ChecksumError(DataError):
    """A file was read, but its decoded arrays differ from the published ones."""


class DownloadError(DataError):
    """A file could not be downloaded completely from its official address."""


def user_cache(platform: str | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Return this user's cache directory for gilib, which need not exist.

    The directory is `$LOCALAPPDATA/gilib` on Windows and `$XDG_CACHE_HOME/gilib` elsewhere, by default
    `~/.cache/gilib`.

    >>> user_cache("linux", {"XDG_CACHE_HOME": "/var/cache/me"}).as_posix()
    '/var/cache/me/gilib'
    """
    environ = os.environ if environ is None else environ
    if (platform or sys.platform) == "win32":
        base = environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gilib"


def data_directory() -> Path:
    """Return the directory in which data files are looked up and stored; it need not exist.

    The environment variable `GILIB_DATA` names it; if that is not set, it is this user's cache.

    >>> isinstance(data_directory(), Path)
    True
    """
    chosen = os.environ.get("GILIB_DATA")
    return Path(chosen).expanduser() if chosen else user_cache()


def shipped_table(name: str) -> bytes | None:
    """Return the content of a table that the package includes, or None if it does not include the table."""
    import lzma
    from importlib.resources import files

    packed = files("gilib.data") / "files" / f"{name}.txt.xz"
    return lzma.decompress(packed.read_bytes()) if packed.is_file() else None


def find_file(*places: str) -> Path | None:
    """Return the first of these paths below `GILIB_DATA` or the user's cache that is a file, or None."""
    for directory in dict.fromkeys((data_directory(), user_cache())):
        for place in places:
            path = directory / place
            if path.is_file():
                return path
    return None


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
