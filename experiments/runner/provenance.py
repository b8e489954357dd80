"""The provenance of a record: versions, hardware and revision of the code that is running."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

UNKNOWN = "unknown"


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Return versions, hardware and revision of the code that is running.

    Args:
        device: "cpu" or "cuda".

    >>> provenance()["device"]
    'cpu'
    """
    return {
        "gilib": _package_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device,
        "hardware": torch.cuda.get_device_name() if device == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "revision": source_revision(),
    }


@functools.cache
def source_revision(*also: str) -> str:
    """Return the commit of the source at the first call, and a + if `gilib` or `experiments` differ from it.

    For a copy without a repository return the environment variable GILIB_REVISION, or else "unknown".

    Args:
        also: further folders of the repository whose changes count.
    """
    found = revision_of(Path(__file__).parents[2], *also)
    return os.environ.get("GILIB_REVISION", found) if found == UNKNOWN else found


def revision_of(checkout: Path, *also: str) -> str:
    """Return the commit of a checkout, with a + if relevant files differ; "unknown" without a repository."""
    try:
        commit = _git(checkout, "rev-parse", "--short=12", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--", "gilib", "experiments", *also)
        return commit + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN


def _git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _package_version() -> str:
    from gilib import __version__

    return __version__


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"
