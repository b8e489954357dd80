"""Cholesky factors, and their inverses, of symmetric positive definite matrices.

With the *inverse* of a factor, sampling and scoring a Gaussian given by its precision are plain products.
LAPACK factorises small matrices one after the other; it is two to three times faster to halve them until
their diagonal blocks are small, and to multiply batches of blocks in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from gilib.linalg.blocks import at_once, piecewise

_failures_raise = ContextVar("failures_raise", default=True)
MIN_MATRICES = 128  # in a piece: with fewer, calls for their blocks cost more than the cache saves
LEAVES = ((10, 64), (32, 32))  # (most matrices, largest diagonal block for LAPACK); measured
LEAF = 16  # largest diagonal block for more matrices than that; measured at sizes 51 to 128
ADVICE = "rows that are nearly dependent, or scales far apart; compute in float64, or lower the learning rate"


class FactorisationError(RuntimeError):
    """A matrix that should be positive definite has no Cholesky factor.

    Attributes:
        what: name of the matrix.
        cause: why it cannot be factorised, and what to do.
        where: names of the layers that contain the matrix, outermost first.
    """

    def __init__(self, what: str, cause: str, where: tuple[str, ...] = ()):
        self.what, self.cause, self.where = what, cause, where
        place = "".join(f"{name}: " for name in where)
        super().__init__(f"{place}{what} is not positive definite ({cause})")

    def __reduce__(self) -> tuple[type, tuple[str, str, tuple[str, ...]]]:
        """Make the error picklable, so that it can pass between processes."""
        return type(self), (self.what, self.cause, self.where)

    def within(self, layer: str) -> FactorisationError:
        """Return this error with the name of an enclosing layer added."""
        return FactorisationError(self.what, self.cause, (layer, *self.where))


def _diagnose(matrix: Tensor, advice: str) -> str:
    flat = matrix.detach().reshape(-1, *matrix.shape[-2:])
    finite = torch.isfinite(flat).all(-1).all(-1)
    if not finite.all():
        count = int((~finite).sum())
        return (
            f"{count} of {len(flat)} matrices hold NaN or infinite entries: training has diverged (lower the "
            "learning rate), or an input, a parameter or a setting is too large or not finite"
        )
    lower = flat.tril()
    eigenvalues = torch.linalg.eigvalsh((lower + lower.tril(-1).mT).double())
    worst = eigenvalues[eigenvalues[:, 0].argmin()]
    smallest, largest = float(worst[0]), float(worst[-1])
    if max(abs(smallest), abs(largest)) < torch.finfo(matrix.dtype).tiny:
        return f"all that it holds is zero in {matrix.dtype}: a variance or a scale is too small for that"
    ratio = f"{largest / smallest:.1e}" if smallest > 0 else "infinite"
    return f"eigenvalues {smallest:.2e} to {largest:.2e}, condition {ratio}, in {matrix.dtype}: {advice}"


def readable(tensor: Tensor) -> bool:
    """Return whether Python may read values: on the CPU, outside compilers and `torch.func.vmap`.

    On an accelerator reading a value would make the program wait for all queued work.
    """
    if torch.compiler.is_compiling():
        return False
    wrapped = torch._C._functorch
    if wrapped.is_functorch_wrapped_tensor(tensor) or wrapped.is_legacy_batchedtensor(tensor):
        return False
    return tensor.device.type == "cpu"


@contextmanager
def failures_as_nan() -> Iterator[None]:
    """Give a matrix that cannot be factorised a factor of NaN within this context, instead of an error.

    Use it for batches of independent problems, so that one failure does not stop the others.

    >>> with failures_as_nan():
    ...     cholesky(torch.tensor([[[4.0]], [[-1.0]]])).flatten()
    tensor([2., nan])
    """
    token = _failures_raise.set(False)
    try:
        yield
    finally:
        _failures_raise.reset(token)


def cholesky(matrix: Tensor, what: str = "the matrix", advice: str = ADVICE) -> Tensor:
    """Return the lower Cholesky factor T of `matrix` = T Tᵀ; only the lower triangle is read.

    Args:
        matrix: `[..., I, I]`, symmetric positive definite.
        what: name of the matrix, for the error.
        advice: possible causes and remedies, for the error.

    Returns:
        T, `[..., I, I]`. On an accelerator, where reading a flag would stall the queue, the factor of a
        matrix that is not positive definite is NaN instead; `gilib.fit` notices the NaN in the objective.

    Raises:
        FactorisationError: on the CPU and outside of `failures_as_nan`, if a matrix is not positive definite.

    >>> cholesky(torch.tensor([[4.0, 0.0], [2.0, 2.0]]))
    tensor([[2., 0.],
            [1., 1.]])
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    if readable(info):
        if not bool(info.any()):
            return factor
        if _failures_raise.get():
            raise FactorisationError(what, _diagnose(matrix, advice))
    return factor.masked_fill((info != 0)[..., None, None], torch.nan)


def tril_logdet(factor: Tensor) -> Tensor:
    """Return log det T = ½ log det T Tᵀ, `[...]`, of triangular T `[..., I, I]` with a positive diagonal."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def identities(like: Tensor) -> Tensor:
    """Return a batch of identity matrices in the shape of `like` that occupies the memory of one."""
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device).expand_as(like)


def inverse_cholesky(matrix: Tensor, what: str = "the matrix", advice: str = ADVICE) -> Tensor:
    """Return the inverse T⁻¹ of the lower Cholesky factor of `matrix` = T Tᵀ, computed by blocks.

    For H = [[A, Bᵀ], [B, C]] the factor's inverse is [[a, 0], [-c B aᵀ a, c]], where a is the inverse factor
    of A, and c the inverse factor of the Schur complement C - (B aᵀ)(B aᵀ)ᵀ.

    Args:
        matrix: `[..., I, I]`, symmetric positive definite; only its lower triangle is read.
        what: name of the matrix, for the error.
        advice: possible causes and remedies, for the error.

    Returns:
        T⁻¹, `[..., I, I]`, lower triangular. Failures are reported as by `cholesky`.

    >>> inverse_cholesky(torch.tensor([[4.0, 0.0], [2.0, 2.0]]))
    tensor([[ 0.5000,  0.0000],
            [-0.5000,  1.0000]])
    """
    batch = matrix.reshape(-1, *matrix.shape[-2:])
    step, largest = max(MIN_MATRICES, at_once(batch, batch.shape[-2:].numel())), leaf(len(batch))
    try:
        (inverse,) = piecewise(lambda part: (_inverse_cholesky(part, largest),), batch, step=step)
        return inverse.reshape(matrix.shape)
    except FactorisationError as error:
        raise FactorisationError(what, _diagnose(matrix, advice)) from error


def leaf(count: int) -> int:
    """Return the size of the largest diagonal block for LAPACK: small ones pay for many matrices only."""
    return next((size for most, size in LEAVES if count <= most), LEAF)


def _inverse_cholesky(matrix: Tensor, largest: int) -> Tensor:
    """Recurse into halves; on an accelerator, where every block costs kernel launches, factorise at once."""
    size = matrix.shape[-1]
    if size <= largest or matrix.device.type != "cpu":
        factor = cholesky(matrix)
        return torch.linalg.solve_triangular(factor, identities(factor), upper=False)
    half = (size // 2 + 7) // 8 * 8
    first = _inverse_cholesky(matrix[:, :half, :half], largest)
    below = matrix[:, half:, :half] @ first.mT
    second = _inverse_cholesky(torch.baddbmm(matrix[:, half:, half:], below, below.mT, alpha=-1.0), largest)
    inverse = torch.zeros_like(matrix)
    inverse[:, :half, :half] = first
    inverse[:, half:, half:] = second
    inverse[:, half:, :half] = torch.bmm(second, below @ first).neg_()
    return inverse
