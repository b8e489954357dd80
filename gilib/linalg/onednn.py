"""Large products of float32 by oneDNN, on processors of which torch's own library uses half.

torch multiplies with MKL, which takes instructions of 512 bits on Intel's processors only. AMD's are that
wide from family 26 (Zen 5) on: there large products run at some 230 GFLOP/s a core by oneDNN, which torch
brings along for convolutions, in place of 110. A call costs ten microseconds more, a new shape a third of a
millisecond; errors of rounding are up to three times as large. `torch.backends.mkldnn.enabled = False`
switches it off.

Needed with torch 2.13, whose MKL is 2024.2. Needless from the first release in which benchmarks are as fast
with `--without-onednn` on such a processor: then this file goes, and its uses in `products`.
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

LEAST = 2**21  # multiplications of a product that is worth the call; measured
TERMS = 32  # of each of its sums: with fewer, most of the time is spent on writing them
NARROW = 8  # rows or columns: fewer are a product with vectors, which is bound by memory
WIDE_FAMILY = 26  # of AMD: its first processors that compute with 512 bits at once
CPUINFO = Path("/proc/cpuinfo")


def by_onednn(left: Tensor, right: Tensor) -> bool:
    """Whether a product `[..., I, J]` and `[..., J, K]`, of one sample, goes to oneDNN.

    Its operation has no forward derivative, no batching rule and no autocast, and compilers and traces do not
    know it: whoever asks for these gets torch's own.
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
    """Whether matrices that fit are worth the call. One on the left that lies by columns is copied first."""
    (rows, terms), (others, columns) = left.shape[-2:], right.shape[-2:]
    if rows * terms * columns < LEAST or terms != others or terms < TERMS or min(rows, columns) < NARROW:
        return False
    if not left.dtype == right.dtype == torch.float32 or not left.layout == right.layout == torch.strided:
        return False
    return rows * terms * columns >= (LEAST if left.stride(-1) == 1 else 2 * LEAST)


@functools.cache
def runs_at_half_width() -> bool:
    """Whether torch's products in float32 leave half of this processor unused, and oneDNN would not."""
    backends = torch.backends
    if not (backends.mkl.is_available() and backends.mkldnn.is_available()):
        return False
    if backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    said = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else ""  # Linux alone says
    family = re.search(r"vendor_id\s*:\s*AuthenticAMD\ncpu family\s*:\s*(\d+)", said)
    return family is not None and int(family[1]) >= WIDE_FAMILY


def onednn(left: Tensor, right: Tensor) -> Tensor:
    """`left` @ `right`, by the operation that torch's compiler uses for linear layers.

    Its second argument is the transpose. Of matrices that are neither rows nor columns side by side in memory
    it takes a slow path: they are copied.
    """
    found: Tensor = torch.ops.mkldnn._linear_pointwise.default(
        _dense(left), _dense(right.mT), None, "none", [], ""
    )
    return found


def _dense(matrix: Tensor) -> Tensor:
    return matrix if matrix.is_contiguous() or matrix.mT.is_contiguous() else matrix.contiguous()
