"""Memory that a step frees stays with the process, for the next one.

The C library of most Linux systems, glibc, maps blocks above a threshold anew each time, and gives the top of
its heap back to the system once twice as much is free. Both thresholds grow with the largest block that it
has seen freed, up to 32 MB. A step of training frees tens of megabytes in blocks of one to five: they would
come back page by page, thousands of page faults a step, up to half of its time where memory is slow.
"""

from __future__ import annotations

import functools

import torch

LARGEST = 31 * 2**20  # bytes; glibc learns nothing from blocks above 32 MB


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc see the largest block freed that it learns from, once in a process; others lose nothing.

    No page of the block is touched. From then on up to 62 MB that are free stay with the process.

    >>> keep_freed_memory()
    """
    block = torch.empty(LARGEST, dtype=torch.uint8, device="cpu")
    del block
