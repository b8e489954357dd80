"""Structured symmetric matrices: prior precisions that are not built before they are added."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.linalg.factor import cholesky


class SymmetricOperator(ABC):
    """A symmetric positive definite `[..., I, I]` matrix P known by its structure.

    A prior over the columns of a weight matrix is N(0, P⁻¹); `regression` adds P to the statistics, scores
    weights under it and draws from it, and needs nothing else.
    """

    size: int

    @abstractmethod
    def dense(self) -> Tensor:
        """The matrix itself, `[..., I, I]`."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Its diagonal, `[..., I]`."""

    @abstractmethod
    def log_det(self) -> Tensor:
        """Its log-determinant, `[...]`."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> SymmetricOperator:
        """The same operator in another precision of arithmetic."""

    @abstractmethod
    def quadratic(self, weights: Tensor) -> Tensor:
        """Σ_o w_oᵀ P w_o over the columns of `weights` `[..., I, O]`; `[...]`."""

    @abstractmethod
    def colour(self, noise: Tensor) -> Tensor:
        """Map standard normals `[..., I, O]` to columns P^-½ z distributed as N(0, P⁻¹)."""

    @abstractmethod
    def pull_back(self, features: Tensor) -> Tensor:
        """Map rows `[..., M, I]` to Φ P^-½: `pull_back(Φ) @ z` is `Φ @ colour(z)`."""

    def add_to(self, matrix: Tensor) -> Tensor:
        """`matrix` + P for a `matrix` `[..., G, I, I]` with one more axis, of groups of outputs."""
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
        """The matrix itself, `[..., I, I]`."""
        return torch.diag_embed(self.diagonal())

    def diagonal(self) -> Tensor:
        """Its diagonal, `[..., I]`."""
        return self.scale[..., None].expand(*self.scale.shape, self.size)

    def log_det(self) -> Tensor:
        """I log(scale), `[...]`."""
        return self.size * self.scale.log()

    def to(self, dtype: torch.dtype) -> ScaledIdentity:
        """The same operator in another precision of arithmetic."""
        return ScaledIdentity(self.scale.to(dtype), self.size)

    def quadratic(self, weights: Tensor) -> Tensor:
        """Scale · Σ w², `[...]`."""
        return self.scale * weights.square().sum((-2, -1))

    def colour(self, noise: Tensor) -> Tensor:
        """Noise / √scale, `[..., I, O]`."""
        return noise / self.scale.sqrt()[..., None, None]

    def pull_back(self, features: Tensor) -> Tensor:
        """Features / √scale, `[..., M, I]`."""
        return self.colour(features)


@dataclass(frozen=True)
class KroneckerIdentity(SymmetricOperator):
    """P = Id_repeats ⊗ B: the same block for every channel of a convolution (Ober & Aitchison, 2021, Eq. 19).

    Args:
        block: B, `[..., K, K]`, symmetric positive definite.
        repeats: number of blocks; I = repeats · K, the index within a block running fastest.

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
        """The matrix itself, `[..., I, I]`."""
        identity = torch.eye(self.repeats, dtype=self.block.dtype, device=self.block.device)
        blocks = (
            identity[:, None, :, None] * self.block[..., None, :, None, :]
        )  # [..., repeats, K, repeats, K]
        return blocks.reshape(*self.block.shape[:-2], self.size, self.size)

    def diagonal(self) -> Tensor:
        """Its diagonal, `[..., I]`."""
        diagonal = self.block.diagonal(dim1=-2, dim2=-1)
        return diagonal.repeat(*(1,) * (diagonal.dim() - 1), self.repeats)

    def log_det(self) -> Tensor:
        """Repeats · log det B, `[...]`."""
        factor = cholesky(self.block, "the block of the prior precision")
        return 2.0 * self.repeats * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def to(self, dtype: torch.dtype) -> KroneckerIdentity:
        """The same operator in another precision of arithmetic."""
        return KroneckerIdentity(self.block.to(dtype), self.repeats)

    def quadratic(self, weights: Tensor) -> Tensor:
        """Σ wᵀ B w over blocks and columns, `[...]`."""
        blocks = self._blocks(weights)
        return ((self.block[..., None, :, :] @ blocks) * blocks).sum((-3, -2, -1))

    def colour(self, noise: Tensor) -> Tensor:
        """T⁻ᵀ noise in every block, B = T Tᵀ; `[..., I, O]`."""
        factor = cholesky(self.block, "the block of the prior precision")
        coloured = torch.linalg.solve_triangular(factor.mT[..., None, :, :], self._blocks(noise), upper=True)
        return coloured.reshape(*coloured.shape[:-3], self.size, noise.shape[-1])

    def pull_back(self, features: Tensor) -> Tensor:
        """Features T⁻ᵀ in every block of columns, B = T Tᵀ; `[..., M, I]`."""
        factor = cholesky(self.block, "the block of the prior precision")
        rows = features.unflatten(-1, (self.repeats, self.block.shape[-1]))  # [..., M, repeats, K]
        pulled = torch.linalg.solve_triangular(factor.mT[..., None, :, :], rows, upper=True, left=False)
        return pulled.flatten(-2)

    def _blocks(self, columns: Tensor) -> Tensor:
        return columns.reshape(*columns.shape[:-2], self.repeats, self.block.shape[-1], columns.shape[-1])
