"""Compute large float32 products with oneDNN on AMD processors, where torch's own library is half as fast.

torch multiplies with MKL, which uses 512-bit instructions on Intel processors only. On AMD processors that
have them (family 26, Zen 5, on) oneDNN, which torch includes for convolutions, reaches some 230 GFLOP/s a
core instead of 110. A call costs ten microseconds more, a new shape a third of a millisecond, and rounding
errors are up to three times as large. `torch.backends.mkldnn.enabled = False` switches oneDNN off.

Delete this file, and its uses in `products`, once the benchmarks run as fast with `--without-onednn` on such
a processor; with torch 2.13 and its MKL 2024.2 they do not.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gilib.linalg.factor import readable
from gilib.linalg.operation import within_transform

LEAST = 2**21  # fewest multiplications for which the call pays; measured
TERMS = 32  # fewest terms in each sum: with fewer, most of the time goes into writing the result
NARROW = 8  # fewest rows and columns: below, the product is bound by memory, like one with a vector
WIDE_FAMILY = 26  # the first family of AMD processors with 512-bit arithmetic
CPUINFO = Path("/proc/cpuinfo")


def by_onednn(left: Tensor, right: Tensor) -> bool:
    """Return whether oneDNN should multiply one sample of `[..., I, J]` and `[..., J, K]`.

    torch's operation for oneDNN has no forward derivative, batching rule or autocast, and cannot be compiled
    or traced: torch's own product is used there.
    """
    if not _is_large(left, right) or torch.compiler.is_compiling():
        return False
    if forward_ad._current_level >= 0 or within_transform():
        return False
    if torch.is_autocast_enabled("cpu") or torch.jit.is_tracing():
        return False
    if not (runs_at_half_width() and torch.backends.mkldnn.enabled):
        return False
    return readable(left) and readable(right)


def _is_large(left: Tensor, right: Tensor) -> bool:
    """Return whether a product is large enough for oneDNN, which copies a column-major left matrix first."""
    (rows, terms), (others, columns) = left.shape[-2:], right.shape[-2:]
    if rows * terms * columns < LEAST or terms != others or terms < TERMS or min(rows, columns) < NARROW:
        return False
    if not left.dtype == right.dtype == torch.float32 or not left.layout == right.layout == torch.strided:
        return False
    return rows * terms * columns >= (LEAST if left.stride(-1) == 1 else 2 * LEAST)


@functools.cache
def runs_at_half_width() -> bool:
    """Return whether this processor computes with 512 bits, but MKL does not use them."""
    backends = torch.backends
    if not (backends.mkl.is_available() and backends.mkldnn.is_available()):
        return False
    if backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    said = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else ""  # only Linux has this file
    family = re.search(r"vendor_id\s*:\s*AuthenticAMD\ncpu family\s*:\s*(\d+)", said)
    return family is not None and int(family[1]) >= WIDE_FAMILY


def onednn(left: Tensor, right: Tensor) -> Tensor:
    """Return `left` @ `right`, computed by the operation that torch's compiler uses for linear layers."""
    linear = torch.ops.mkldnn._linear_pointwise.default  # its second argument is transposed
    return linear(_dense(left), _dense(right.mT), None, "none", [], "")


def _dense(matrix: Tensor) -> Tensor:
    """Copy a matrix that is neither row-major nor column-major, for which the operation is slow."""
    return matrix if matrix.is_contiguous() or matrix.mT.is_contiguous() else matrix.contiguous()
