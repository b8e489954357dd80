"""Where data files lie: in the package, on this machine, or at an address that one is fetched from."""

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
MOST_BYTES = 1 << 28  # of a download; the largest that there is, CIFAR-10, has 170 MB
SHIPPED = "the copy that ships with gilib"  # what errors call it


class DataError(RuntimeError):
    """A data set could not be found, read or trusted; the message says what to do about it."""


class ChecksumError(DataError):
    """A file was read, but the decoded arrays are not the published ones."""


class DownloadError(DataError):
    """A file could not be fetched in full from its official place."""


def user_cache(platform: str | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """This user's cache directory for gilib, by the custom of the platform; it need not exist.

    `$LOCALAPPDATA/gilib` on Windows, elsewhere `$XDG_CACHE_HOME/gilib`, by default `~/.cache/gilib`.

    Args:
        platform: as `sys.platform` names it; this machine's if not given.
        environ: the environment variables; this process's if not given.

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
    """The directory that data files are looked up in and fetched to; it need not exist.

    The environment variable `GILIB_DATA` where it is set, else this user's cache.

    >>> isinstance(data_directory(), Path)
    True
    """
    chosen = os.environ.get("GILIB_DATA")
    return Path(chosen).expanduser() if chosen else user_cache()


def shipped_table(name: str) -> bytes | None:
    """The content of a table that comes with the package, or None where it does not.

    Args:
        name: short name of the set, such as `"power"`.

    >>> shipped_table("yacht").splitlines()[0]
    b'-2.3 0.568 4.78 3.99 3.17 0.125 0.11'
    """
    import lzma
    from importlib.resources import files

    packed = files("gilib.data") / "files" / f"{name}.txt.xz"
    return lzma.decompress(packed.read_bytes()) if packed.is_file() else None


def find_file(folder: str) -> Path | None:
    """The `data.txt` of a publisher's folder on this machine, or None.

    Looked up below `GILIB_DATA` and then below the user cache, as `uci/FOLDER/data.txt`,
    `FOLDER/data.txt` or `FOLDER/data/data.txt` (the layout of the publishers' repository).

    Args:
        folder: the publisher's name of the folder, such as `"power-plant"`.
    """
    for directory in dict.fromkeys((data_directory(), user_cache())):
        for place in (("uci", folder), (folder,), (folder, "data")):
            path = directory.joinpath(*place, "data.txt")
            if path.is_file():
                return path
    return None


def fetch(url: str, target: Path, check: Callable[[bytes], object]) -> None:
    """Fetch `url` to `target` with a progress bar; `target` appears whole and checked, or not at all.

    Args:
        url: the official address of the file.
        target: where the file will lie; its folder is created.
        check: is given the whole content and raises where that is not what it should be.

    Raises:
        DataError: if the folder of `target` cannot be written to.
        DownloadError: if the address cannot be reached, answers with an error, ends early or is too long.
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
    """Copy `url` to `sink`, every failure turned into one that says what to do."""
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
    """Copy a response to `sink` under a progress bar; return what is wrong with its length, or nothing."""
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
