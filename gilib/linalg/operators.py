"""Structured symmetric matrices, used for prior precisions without building them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.linalg.factor import cholesky, tril_logdet


class SymmetricOperator(ABC):
    """A symmetric positive definite `[..., I, I]` matrix P with a known structure.

    The prior over each column of a weight matrix is N(0, P⁻¹).
    """

    size: int

    @abstractmethod
    def dense(self) -> Tensor:
        """Return the matrix, `[..., I, I]`."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Return the diagonal, `[..., I]`."""

    @abstractmethod
    def log_det(self) -> Tensor:
        """Return the log-determinant, `[...]`."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> SymmetricOperator:
        """Return the operator in another dtype."""

    @abstractmethod
    def quadratic(self, weights: Tensor) -> Tensor:
        """Return Σ_o w_oᵀ P w_o, `[...]`, over the columns of `weights` `[..., I, O]`."""

    @abstractmethod
    def sqrt_inv_matmul(self, noise: Tensor) -> Tensor:
        """Return P^-½ z for standard normals z `[..., I, O]`: columns distributed as N(0, P⁻¹)."""

    @abstractmethod
    def whiten(self, features: Tensor) -> Tensor:
        """Return Φ P^-½, `[..., M, I]`, so that `whiten(Φ) @ z` equals `Φ @ sqrt_inv_matmul(z)`."""

    def add_to(self, matrix: Tensor) -> Tensor:
        """Return `matrix` + P for a `matrix` `[..., G, I, I]` with an additional axis of output groups."""
        return matrix + self.dense()[..., None, :, :]


@dataclass(frozen=True)
class ScaledIdentity(SymmetricOperator):
    """P = scale · Id.

    Args:
        scale: `[...]`, positive.
        size: I.

    >>> ScaledIdentity(torch.tensor(2.0), 3).log_det()
    tensor(2.0794)
    """

    scale: Tensor
    size: int

    def dense(self) -> Tensor:
        return torch.diag_embed(self.diagonal())

    def diagonal(self) -> Tensor:
        return self.scale[..., None].expand(*self.scale.shape, self.size)

    def log_det(self) -> Tensor:
        return self.size * self.scale.log()

    def to(self, dtype: torch.dtype) -> ScaledIdentity:
        return ScaledIdentity(self.scale.to(dtype), self.size)

    def quadratic(self, weights: Tensor) -> Tensor:
        return self.scale * weights.square().sum((-2, -1))

    def sqrt_inv_matmul(self, noise: Tensor) -> Tensor:
        return noise / self.scale.sqrt()[..., None, None]

    def whiten(self, features: Tensor) -> Tensor:
        return self.sqrt_inv_matmul(features)


@dataclass(frozen=True)
class KroneckerIdentity(SymmetricOperator):
    """P = Id_repeats ⊗ B: one block shared by all channels of a convolution (Ober & Aitchison, 2021, Eq. 19).

    Args:
        block: B, `[..., K, K]`, symmetric positive definite.
        repeats: number of blocks; I = repeats · K, and the index within a block runs fastest.

    >>> KroneckerIdentity(2.0 * torch.eye(2), 3).quadratic(torch.ones(6, 1))
    tensor(12.)
    """

    block: Tensor
    repeats: int

    @property
    def size(self) -> int:  # type: ignore[override]
        """I = repeats · K."""
        return self.repeats * self.block.shape[-1]

    def dense(self) -> Tensor:
        identity = torch.eye(self.repeats, dtype=self.block.dtype, device=self.block.device)
        blocks = identity[:, None, :, None] * self.block[..., None, :, None, :]  # [..., R, K, R, K]
        return blocks.reshape(*self.block.shape[:-2], self.size, self.size)

    def diagonal(self) -> Tensor:
        diagonal = self.block.diagonal(dim1=-2, dim2=-1)
        return diagonal.repeat(*(1,) * (diagonal.dim() - 1), self.repeats)

    def log_det(self) -> Tensor:
        return 2.0 * self.repeats * tril_logdet(self._factor())

    def to(self, dtype: torch.dtype) -> KroneckerIdentity:
        return KroneckerIdentity(self.block.to(dtype), self.repeats)

    def quadratic(self, weights: Tensor) -> Tensor:
        blocks = self._blocks(weights)
        return ((self.block[..., None, :, :] @ blocks) * blocks).sum((-3, -2, -1))

    def sqrt_inv_matmul(self, noise: Tensor) -> Tensor:
        """Multiply every block of `noise` `[..., I, O]` by T⁻ᵀ on the left, where B = T Tᵀ."""
        root = self._factor().mT[..., None, :, :]
        drawn = torch.linalg.solve_triangular(root, self._blocks(noise), upper=True)
        return drawn.reshape(*drawn.shape[:-3], self.size, noise.shape[-1])

    def whiten(self, features: Tensor) -> Tensor:
        """Multiply every block of columns of `features` `[..., M, I]` by T⁻ᵀ on the right, where B = T Tᵀ."""
        root = self._factor().mT[..., None, :, :]
        rows = features.unflatten(-1, (self.repeats, self.block.shape[-1]))  # [..., M, repeats, K]
        return torch.linalg.solve_triangular(root, rows, upper=True, left=False).flatten(-2)

    def _factor(self) -> Tensor:
        return cholesky(self.block, "the block of the prior precision")

    def _blocks(self, columns: Tensor) -> Tensor:
        return columns.reshape(*columns.shape[:-2], self.repeats, self.block.shape[-1], columns.shape[-1])
