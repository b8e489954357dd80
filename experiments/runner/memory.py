"""Memory that is freed is kept by the process: what a step gives back it needs again in the next one."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of malloc.h
KEPT_BYTES = 2**31 - 1  # free memory at the top of the heap that is not given back
STEP_BYTES = 2**26  # by which the heap grows
LARGEST = (2**30, 2**25)  # of a block that lies on the heap; older versions allow the second alone


def keep_memory() -> bool:
    """Ask the allocator to keep what is freed; for programs: it changes the whole process.

    The C library maps large blocks anew each time and gives them back to the system, so that each step of a
    training touches its temporaries as fresh pages: thousands of page faults, up to half of the time on a
    machine with slow memory.

    Returns:
        Whether there was one to ask: that of glibc. Others are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # a library without it
        return False
    kept = mallopt(TRIM_THRESHOLD, KEPT_BYTES) and mallopt(TOP_PAD, STEP_BYTES)
    return bool(kept and any(mallopt(MMAP_THRESHOLD, size) for size in LARGEST))
