"""One Gaussian over the inducing outputs of all layers, given by its sparse Cholesky factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from gilib.posteriors import BuildContext, WeightDistribution
from gilib.posteriors.free import HIDDEN_SCALE, Gaussians, half_log_det
from gilib.structured.pattern import Pattern


class JointDistribution(NamedTuple):
    """The distribution of the whitened inducing outputs of all layers, a Gaussian.

    Attributes:
        pattern: pattern of the covariance.
        means: means of every layer, `[R, M_l, T_l]`.
        covariance: nonzero blocks of its lower triangle by their processes (row, column), `[R, M_r, M_c]`.
    """

    pattern: Pattern
    means: tuple[Tensor, ...]
    covariance: Mapping[tuple[int, int], Tensor]


class JointGaussian(nn.Module, Gaussians):
    """The parameters of Q(w) = N(m, C Cᵀ), where w are the whitened inducing outputs of all layers.

    Attributes:
        means: m of every layer, `[R, M_l, T_l]`.
        rows: the rows of C, one for every process, `[R, M_r, K_r]`, with their blocks side by side; the last
            block is lower triangular.
    """

    def __init__(self, pattern: Pattern, context: BuildContext):
        super().__init__()
        self.pattern, self.noise_size = pattern, pattern.size
        shapes = zip(pattern.sizes, pattern.widths, strict=True)
        self.means = nn.ParameterList(context.full(shape, 0.0) for shape in shapes)
        self.rows = nn.ParameterList(self._start(process, context) for process in range(len(pattern.places)))

    def _start(self, process: int, context: BuildContext) -> Tensor:
        points, starts = self.pattern.points[process], self.pattern.starts[process]
        last = self.pattern.places[process].layer == len(self.pattern.widths) - 1
        scale = self.pattern.family.initial_scale or (1.0 if last else HIDDEN_SCALE)
        row = context.full((points, starts[process] + points), 0.0)
        row[..., starts[process] :].diagonal(dim1=-2, dim2=-1).fill_(scale)
        return row

    @property
    def gaussian_parameters(self) -> list[nn.Parameter]:
        """Means of all layers, then rows of all processes.

        Raises:
            ValueError: if C has a zero block within a group of processes that depend on each other. The
                covariance C Cᵀ is then restricted, and such Gaussians are no exponential family.
        """
        factor = self.pattern.factor
        if any(factor[r] != group[: k + 1] for group in self.pattern.components for k, r in enumerate(group)):
            raise ValueError(
                f"natural gradients need every block of a covariance, but {self.pattern.family} omits some: "
                "train it with gilib.Adam, or use MeanField or FullyCoupled"
            )
        return [*self.means, *self.rows]

    def dense(self, values: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return one dense Gaussian for each group of processes that depend on each other.

        It has means `[R, n_g, 1]` and a factor `[R, 1, n_g, n_g]`, for the group's n_g inducing outputs.
        """
        pattern, found = self.pattern, []
        means, rows = values[: len(pattern.widths)], values[len(pattern.widths) :]
        for group in pattern.components:
            places = [pattern.places[process] for process in group]
            mean = torch.cat([means[place.layer][..., place.index] for place in places], -1)
            filled = [pad(rows[r], (0, mean.shape[-1] - rows[r].shape[-1])) for r in group]
            found.append((mean[..., None], torch.cat(filled, -2)[..., None, :, :]))
        return found

    def undense(self, gaussians: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        pattern = self.pattern
        means: dict[int, Tensor] = {}
        rows: dict[int, Tensor] = {}
        for group, (mean, root) in zip(pattern.components, gaussians, strict=True):
            sizes = [pattern.points[process] for process in group]
            means |= dict(zip(group, mean[..., 0].split(sizes, -1), strict=True))
            strips = zip(group, root[..., 0, :, :].split(sizes, -2), strict=True)
            rows |= {process: strip[..., : self.rows[process].shape[-1]] for process, strip in strips}
        stacked = [torch.stack([means[process] for process in layer], -1) for layer in pattern.layers]
        return [*stacked, *(rows[process] for process in range(len(rows)))]

    def factor(self) -> list[Tensor]:
        """Return the rows of C, `[R, M_r, K_r]`, with zeros above the diagonal."""
        found = []
        for process, row in enumerate(self.rows):
            below, own = row.tensor_split([self.pattern.starts[process][process]], -1)
            found.append(torch.cat([below, own.tril()], -1))
        return found

    def covariance(self) -> dict[tuple[int, int], Tensor]:
        """Return the nonzero blocks S_rc = Σ_k C_rk C_ckᵀ of the lower triangle, `[R, M_r, M_c]`."""
        rows, pattern = self.factor(), self.pattern
        found = {}
        for r, c in pattern.covariance:
            found[r, c] = rows[r].new_zeros(())
            for at, other, length in pattern.runs(r, c):
                product = rows[r].narrow(-1, at, length) @ rows[c].narrow(-1, other, length).mT
                found[r, c] = found[r, c] + product
        return found

    def distribution(self) -> JointDistribution:
        """Return the distribution of w."""
        means = tuple(mean.clone() for mean in self.means)
        return JointDistribution(self.pattern, means, self.covariance())

    def kl(self) -> Tensor:
        """Return KL(Q(w) ‖ N(0, Id)) = ½ (‖C‖² + ‖m‖² - n) - Σ log|C_ii|, `[R]`, nats."""
        squares = [value.square().sum((-2, -1)) for value in (*self.factor(), *self.means)]
        return 0.5 * (torch.stack(squares).sum(0) - self.noise_size) - self.half_log_det

    @property
    def half_log_det(self) -> Tensor:
        """Σ log|C_ii|, `[R]`."""
        own = [row[..., -row.shape[-2] :] for row in self.rows]
        return torch.stack([half_log_det(block[..., None, :, :]) for block in own]).sum(0)

    def draw(self, noise: Tensor) -> tuple[list[Tensor], Tensor]:
        """Draw w = m + C z of every layer, `[S, R, M_l, T_l]`, from z, `[S, R, n]`; return w and log_pq.

        log_pq = -½‖w‖² + ½‖z‖² + Σ log|C_ii|, `[S, R]`, nats.
        """
        pattern, factor = self.pattern, self.factor()
        pieces = noise.split(pattern.points, -1)
        spread = []
        for row, columns in zip(factor, pattern.factor, strict=True):
            own = torch.cat([pieces[column] for column in columns], -1)
            spread.append((row @ own[..., None])[..., 0])
        drawn = [
            mean + torch.stack([spread[process] for process in layer], -1)
            for layer, mean in zip(pattern.layers, self.means, strict=True)
        ]
        squares = noise.square().sum(-1) - torch.stack([w.square().sum((-2, -1)) for w in drawn]).sum(0)
        return drawn, 0.5 * squares + self.half_log_det

    def last(self, drawn: Tensor, noise: Tensor) -> WeightDistribution:
        """Return the distribution of the last layer's inducing outputs given those of the layers below.

        If processes of the last layer depend on each other, it is the draw itself, without a covariance.

        Args:
            drawn: the last layer's inducing outputs from `draw`, `[S, R, M, T]`.
            noise: noise of the same draw.
        """
        rows = self.pattern.layers[-1]
        if any(column in rows for row in rows for column in self.pattern.factor[row][:-1]):
            return WeightDistribution(drawn, None, None)
        # given the layers below, only the own block of each row of C is random
        root = torch.stack([self.rows[row][..., -drawn.shape[-2] :].tril() for row in rows], -3)
        own = torch.stack(noise.split(self.pattern.points, -1)[rows.start :], -2)
        mean = drawn - (root @ own[..., None])[..., 0].mT
        return WeightDistribution(mean, root @ root.mT, None)
