"""Make the process keep freed memory, because the next step of a training needs it again."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # from malloc.h
KEPT_BYTES = 2**31 - 1  # free memory at the top of the heap that the process keeps
STEP_BYTES = 2**26  # the heap grows in steps of this size
LARGEST = (2**30, 2**25)  # largest block on the heap; older versions allow only the second


def keep_memory() -> bool:
    """Ask the allocator to keep freed memory.

    Only programs should call this, because it changes the whole process.

    By default the C library maps every large block anew and returns it to the system. The temporaries of each
    step are then new pages, with thousands of page faults: up to half of the time on machines with slow
    memory.

    Returns:
        Whether the allocator is glibc's; others are not changed.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library, without mallopt
        return False
    kept = mallopt(TRIM_THRESHOLD, KEPT_BYTES) and mallopt(TOP_PAD, STEP_BYTES)
    return bool(kept and any(mallopt(MMAP_THRESHOLD, size) for size in LARGEST))
