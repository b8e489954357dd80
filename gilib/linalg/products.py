"""Products of matrices, the large ones by the library that uses all of a processor's width.

torch multiplies matrices of float32 with MKL, which takes instructions of 512 bits on Intel's own processors
only. It also comes with oneDNN, for convolutions, which takes them wherever they are. AMD's processors are
that wide from family 26 (Zen 5) on: on one thread of an EPYC large products run at some 230 GFLOP/s in place
of 110. There they go to oneDNN, at ten microseconds more for each and a third of a millisecond for a shape
that is new; everywhere else, and where oneDNN is switched off (`torch.backends.mkldnn.enabled = False`),
they stay with torch's own library. Errors of rounding are of the same order, up to three times as large.
"""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gilib.linalg.factor import readable
from gilib.linalg.operation import Operation, within_transform
from gilib.linalg.samples import leading, samples

LEAST = 2**21  # multiplications of a product that is worth the call; measured
TERMS = 32  # of each of its sums: with fewer, most of the time is spent on writing them
NARROW = 8  # rows or columns: fewer are a product with vectors, which is bound by memory
WIDE_FAMILY = 26  # of AMD: its first processors that compute with 512 bits at once
CPUINFO = Path("/proc/cpuinfo")


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """`left` @ `right` of tensors with two axes or more; differentiable as often as wanted.

    >>> matmul(torch.ones(2, 3), torch.ones(4, 3, 5)).shape
    torch.Size([4, 2, 5])
    """
    if torch.compiler.is_compiling() or left.numel() * right.shape[-1] < LEAST:
        return left @ right
    lead = leading(left, right)
    if left.dim() > 2 and right.shape[:-2].numel() == 1 and left.is_contiguous():
        rows = _product(left.flatten(0, -2), right.reshape(right.shape[-2:]))
        return rows.reshape(*lead, left.shape[-2], right.shape[-1])
    if not by_onednn(left, right):
        return left @ right
    return _product(left.expand(*lead, *left.shape[-2:]), right.expand(*lead, *right.shape[-2:]))


def product(left: Tensor, right: Tensor) -> Tensor:
    """The same, arranged so that few large products are made, whoever makes them.

    One matrix on the left takes all samples on the right as its columns, beside each other. A matrix on the
    right takes each sample by itself: torch would copy a batch with many rows to make one of it, which takes
    longer than it saves.

    Args:
        left: `[..., I, J]`.
        right: `[..., J, K]`; leading axes broadcast.

    Returns:
        `[..., I, K]`.

    >>> product(torch.eye(2), torch.ones(3, 2, 4)).shape
    torch.Size([3, 2, 4])
    """
    lead = leading(left, right)
    if left.shape[:-2].numel() == 1 < lead.numel():
        side_by_side = right.flatten(0, -3).transpose(0, 1).flatten(1)
        columns = _product(left.reshape(left.shape[-2:]), side_by_side)
        return columns.unflatten(-1, (-1, right.shape[-1])).transpose(0, 1).unflatten(0, lead)
    return _product(left.expand(*lead, *left.shape[-2:]), right.expand(*lead, *right.shape[-2:]))


def matmul_into(out: Tensor, left: Tensor, right: Tensor, weight: float = 1.0) -> Tensor:
    """`weight` · `left` @ `right`, `[R, I, J]` and `[R, J, K]` or without R, into `out`; not differentiable.

    >>> matmul_into(torch.empty(2, 1), torch.eye(2), torch.ones(2, 1), weight=3.0).flatten()
    tensor([3., 3.])
    """
    if not by_onednn(left, right):
        add = torch.addmm if out.dim() == 2 else torch.baddbmm
        return add(out, left, right, beta=0.0, alpha=weight, out=out)
    found = _sample_by_sample(left, right)
    return out.copy_(found) if weight == 1.0 else torch.mul(found, weight, out=out)


def plus_matmul(total: Tensor, left: Tensor, right: Tensor, weight: float = 1.0) -> Tensor:
    """`total` + `weight` · `left` @ `right`, of two or three axes; not differentiable.

    >>> plus_matmul(torch.ones(2, 1), torch.eye(2), torch.ones(2, 1), weight=-1.0).flatten()
    tensor([0., 0.])
    """
    if total.dim() > 3 or by_onednn(left, right):
        return torch.add(total, matmul(left, right), alpha=weight)
    add = torch.addmm if total.dim() == 2 else torch.baddbmm
    return add(total, left, right, alpha=weight)


def add_matmul(total: Tensor, left: Tensor, right: Tensor, beta: float = 1.0) -> Tensor:
    """`beta` · `total` + `left` @ `right` in the place of `total`; shapes as above, not differentiable.

    >>> add_matmul(torch.ones(2, 1), torch.eye(2), torch.ones(2, 1), beta=3.0).flatten()
    tensor([4., 4.])
    """
    if not by_onednn(left, right):
        add = total.addmm_ if total.dim() == 2 else total.baddbmm_
        return add(left, right, beta=beta)
    found = _sample_by_sample(left, right)
    return total.add_(found) if beta == 1.0 else total.mul_(beta).add_(found)


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
    maker, family = processor()
    return maker == "AuthenticAMD" and family >= WIDE_FAMILY


def processor() -> tuple[str, int]:
    """Who made the processor, in its own words, and its family; "" and 0 where they are not known."""
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux; Windows says "AMD64 Family 26 Model 2 Stepping 1, AuthenticAMD"
        said = platform.processor()
        text = f"vendor_id: {said.rpartition(', ')[2]}\n{said.replace('Family', chr(10) + 'cpu family:')}"
    maker = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
    family = re.search(r"^cpu family\s*:\s*(\d+)", text, re.MULTILINE)
    return maker[1] if maker else "", int(family[1]) if family else 0


def _onednn(left: Tensor, right: Tensor) -> Tensor:
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


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The same of equal leading axes."""
    if not by_onednn(left, right):
        return left @ right
    if not (torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)):
        return _sample_by_sample(left, right)
    found: Tensor = _Product.apply(left, right)
    return found


def _sample_by_sample(left: Tensor, right: Tensor) -> Tensor:
    if left.shape[:-2].numel() == 1:
        found = _onednn(left.flatten(0, -2), right.flatten(0, -2))
        return found.reshape(*left.shape[:-1], right.shape[-1])
    found = left.new_empty(*left.shape[:-1], right.shape[-1])
    for a, b, out in samples(left.shape[:-2], left, right, found):
        out.copy_(_onednn(a, b))
    return found


class _Product(Operation):
    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        return _sample_by_sample(left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        (left, right), wanted = inputs, ctx.needs_input_grad
        ctx.save_for_backward(left if wanted[1] else None, right if wanted[0] else None)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        return (
            _product(gradient, right.mT) if ctx.needs_input_grad[0] else None,
            _product(left.mT, gradient) if ctx.needs_input_grad[1] else None,
        )
