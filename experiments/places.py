"""Where files that do not ship are looked up on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


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


def find_file(*places: str) -> Path | None:
    """Return the first of these paths below `GILIB_DATA` or the user's cache that is a file, or None."""
    for directory in dict.fromkeys((data_directory(), user_cache())):
        for place in places:
            path = directory / place
            if path.is_file():
                return path
    return None
