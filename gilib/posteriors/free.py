"""Free Gaussians over the inducing outputs of a process, as in doubly stochastic variational inference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Positive
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import (
    BuildContext,
    InducingPosterior,
    OwnInducing,
    PosteriorModule,
    WeightDistribution,
)
from gilib.posteriors.pseudo import fitted
from gilib.sites import InducingOutputs, Shape, Site

HIDDEN_SCALE = 0.1


@dataclass(frozen=True)
class FreeGaussian(OwnInducing):
    """Q(w_o) = N(m_o, L_o L_oᵀ) over whitened inducing outputs u = R w (Salimbeni & Deisenroth, 2017).

    One Gaussian process with this posterior is a sparse GP (Hensman et al., 2013), and several layers are a
    doubly stochastic deep GP. Estimates integrate over w; the divergence has a closed form.

    Args:
        num_inducing: M, the number of inducing inputs of the layer; None: as many as the network has
            inducing points.
        initial_scale: L starts as this number times the identity. None: 1 in the last layer and 0.1 in the
            others, so that these start near their mean functions (the authors start at 1e-5; see the
            experiment `dgp_start`).

    >>> FreeGaussian(num_inducing=100).short_name
    'dsvi'
    """

    short_name: ClassVar[str] = "dsvi"
    initial_scale: Positive | None = None

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        return FreeInducing(self, check_process(site, self), context)


class Gaussians(ABC):
    """Modules whose parameters define Gaussians N(m, L Lᵀ), so that natural gradients can train them."""

    @property
    @abstractmethod
    def gaussian_parameters(self) -> list[nn.Parameter]:
        """The parameters that define means and factors."""

    @abstractmethod
    def dense(self, values: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return means `[R, n, O]` and factors `[R, O, n, n]` from values or gradients of the parameters."""

    @abstractmethod
    def undense(self, gaussians: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Return values of the parameters, given means and factors; the inverse of `dense`."""


class FreeInducing(PosteriorModule, Gaussians):
    """Parameters of a free Gaussian over whitened inducing outputs.

    Attributes:
        mean: m, `[R, M, O]`.
        root: L, `[R, O, M, M]`; only the lower triangle is used.
    """

    carries = False
    distribution_size = 0  # nothing is drawn

    def __init__(self, spec: FreeGaussian, site: Site, context: BuildContext):
        super().__init__()
        points, outputs = site.channels, site.outputs
        self.noise_size = points * outputs
        self.mean = nn.Parameter(context.full((points, outputs), 0.0))
        scale = spec.initial_scale or (1.0 if context.last else HIDDEN_SCALE)
        self.root = nn.Parameter(multiple_of_identity(scale, (outputs, points), context))

    @property
    def gaussian_parameters(self) -> list[nn.Parameter]:
        return [self.mean, self.root]

    def dense(self, values: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        mean, root = values
        return [(mean, root)]

    def undense(self, gaussians: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        return list(gaussians[0])

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw w = m + L z, with log_pq = -½‖w‖² + ½‖z‖² + Σ log|L_ii|, from standard normals z."""
        noise = noise.unflatten(-1, self.mean.shape[-2:])
        weights = self.mean + (self.root.tril() @ noise.mT[..., None])[..., 0].mT
        squares = (noise.square() - weights.square()).sum((-2, -1))
        return weights, 0.5 * squares + half_log_det(self.root)

    def distribution(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> WeightDistribution:
        """Return the means m, the covariances L Lᵀ, and minus the Kullback-Leibler divergence."""
        root = self.root.tril()
        return WeightDistribution(self.mean.clone(), root @ root.mT, -self.kl().expand(noise.shape[:-1]))

    def kl(self) -> Tensor:
        """Return KL(Q(w) ‖ N(0, Id)) = ½ (‖L‖² + ‖m‖² - M O) - Σ log|L_ii|, nats, `[R]`."""
        squares = self.root.tril().square().sum((-3, -2, -1)) + self.mean.square().sum((-2, -1))
        return 0.5 * (squares - self.noise_size) - half_log_det(self.root)


@dataclass(frozen=True)
class PropagatedGaussian(InducingPosterior):
    """Q(u_o) = N(m_o, L_o L_oᵀ) at inducing inputs from the layers below (Ustyuzhaninov et al., 2020).

    The distribution of the inducing outputs does not depend on the inducing inputs. So only the functions of
    adjacent layers depend on each other (Ober & Aitchison, 2021, App. G), unless there are skip connections
    (`Residual`, `deep_gp`). The means start at the targets in the last layer, and at zero in the others.

    Args:
        initial_scale: L starts as this number times the identity; small, because white noise is improbable
            under a smooth kernel.

    >>> PropagatedGaussian().short_name
    'prop'
    """

    short_name: ClassVar[str] = "prop"
    is_global: ClassVar[bool] = True
    initial_scale: Positive = 1e-2

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        return PropagatedInducing(self, check_process(site, self), context)


class PropagatedInducing(PosteriorModule):
    """Parameters of a Gaussian over inducing outputs u, which are not whitened.

    Attributes:
        mean: m, `[R, M, O]`.
        root: L, `[R, O, M, M]`; only the lower triangle is used.
    """

    needs_inducing = True

    def __init__(self, spec: PropagatedGaussian, site: Site, context: BuildContext):
        super().__init__()
        points, outputs = site.channels, site.outputs
        self.noise_size = points * outputs
        given, shape = context.pseudo_outputs, site.pseudo_outputs(points)
        self.starts_at_targets = given is not None
        self.mean = nn.Parameter(context.full(shape, 0.0) if given is None else fitted(given, shape, context))
        self.root = nn.Parameter(multiple_of_identity(spec.initial_scale, (outputs, points), context))

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw w = R⁻¹ u, where u = m + L z, from standard normals z; `features` are R, `[S, R, M, M]`.

        log_pq = -½‖w‖² - O Σ log R_ii + ½‖z‖² + Σ log|L_ii|
        """
        assert features is not None
        noise = noise.unflatten(-1, self.mean.shape[-2:])
        outputs = self.mean + (self.root.tril() @ noise.mT[..., None])[..., 0].mT
        weights = torch.linalg.solve_triangular(features, outputs, upper=False)
        log_prior = -0.5 * weights.square().sum((-2, -1))
        log_prior = log_prior - outputs.shape[-1] * features.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        log_det = half_log_det(self.root)
        return weights, log_prior + 0.5 * noise.square().sum((-2, -1)) + log_det


def check_process(site: Site, posterior: InducingPosterior) -> Site:
    """Return the site if it is a Gaussian process's, else raise an error."""
    if not isinstance(site, InducingOutputs):
        raise ValueError(
            f"{type(posterior).__name__} is over the inducing outputs of a Gaussian process: use it in "
            "gilib.GP, or take Factorised, LocalInducing or GlobalInducing for a layer of weights"
        )
    return site


def multiple_of_identity(scale: float, shape: Shape, context: BuildContext) -> Tensor:
    """Return `scale` times the identity, `[R, *shape, n]`, where n is the last number of `shape`."""
    identity = torch.eye(shape[-1], dtype=context.dtype, device=context.device)
    return context.full((*shape, shape[-1]), 0.0) + scale * identity


def half_log_det(root: Tensor) -> Tensor:
    """Return Σ log|L_ii| of factors `[..., O, M, M]`, `[...]`, finite even where training makes L_ii zero."""
    diagonal = root.diagonal(dim1=-2, dim2=-1).abs()
    return diagonal.clamp_min(torch.finfo(root.dtype).tiny).log().sum((-2, -1))
